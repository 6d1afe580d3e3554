# real_multiply_imag_subtract_equal_198823be, written by gpusched
#   a: complex64 [strided, unit]
#   out0: float32 [broadcast, unit]
#   out1: float32 [broadcast, unit]


def point(a, s0, s1, s2, s3, s4, s5):
    t0 = a.real                                   # float32  real
    t1 = t0 * s0                                  # float32  multiply
    t2 = a.imag                                   # float32  imag
    t3 = t2 * s1                                  # float32  multiply
    t4 = t1 - t3                                  # float32  subtract
    t5 = t4 == s2                                 # bool  equal
    t6 = t0 * s1                                  # float32  multiply
    t7 = t2 * s0                                  # float32  multiply
    t8 = t6 + t7                                  # float32  add
    t9 = (t8 == t8) & (fabs(t8) != float32(inf))  # bool  isfinite
    t10 = t9 ^ True                               # bool  invert
    t11 = t5 & t10                                # bool  bitwise_and
    t12 = t4 == s3                                # bool  equal
    t13 = t12 & t10                               # bool  bitwise_and
    t14 = t4 > s4                                 # bool  greater
    t15 = t4 < s3                                 # bool  less
    t16 = t14 & t15                               # bool  bitwise_and
    t17 = t4 - s4                                 # float32  subtract
    t18 = t17 if t16 else t4                      # float32  where
    t19 = exp_f32(t18)                            # float32  exp
    t20 = cos_f32(t8)                             # float32  cos
    t21 = t19 * t20                               # float32  multiply
    t22 = s5 if t16 else s1                       # float32  where
    t23 = t21 * t22                               # float32  multiply
    t24 = s3 if t13 else t23                      # float32  where
    t25 = s0 if t11 else t24                      # float32  where
    t26 = copysign(s0, t8)                        # float32  copysign
    t27 = t8 == s0                                # bool  equal
    t28 = sin_f32(t8)                             # float32  sin
    t29 = t19 * t28                               # float32  multiply
    t30 = t29 * t22                               # float32  multiply
    t31 = t8 if t27 else t30                      # float32  where
    t32 = t26 if t11 else t31                     # float32  where
    invalid = ((t17 != t17) & (t4 == t4) & (s4 == s4))
    invalid = invalid | ((t20 != t20) & (t8 == t8))
    invalid = invalid | ((t23 != t23) & (t21 == t21) & (t22 == t22))
    invalid = invalid | ((t28 != t28) & (t8 == t8))
    invalid = invalid | ((t30 != t30) & (t29 == t29) & (t22 == t22))
    infinite = ((fabs(t17) == float32(inf)) & (fabs(t4) != float32(inf)) & (fabs(s4) != float32(inf)))
    infinite = infinite | ((fabs(t19) == float32(inf)) & (fabs(t18) != float32(inf)))
    infinite = infinite | ((fabs(t23) == float32(inf)) & (fabs(t21) != float32(inf)) & (fabs(t22) != float32(inf)))
    infinite = infinite | ((fabs(t30) == float32(inf)) & (fabs(t29) != float32(inf)) & (fabs(t22) != float32(inf)))
    return t25, t32, invalid, infinite


def kernel(a, out0, out1, s0, s1, s2, s3, s4, s5, n0, n1, a_s0):
    clear_floating_point_errors()
    any_invalid = False
    any_infinite = False
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        for i in range(n1):
            value0, value1, invalid, infinite = point(a_0[i], s0, s1, s2, s3, s4, s5)
            any_invalid = any_invalid | invalid
            any_infinite = any_infinite | infinite
            out0[i] = out0[i] + value0
            out1[i] = out1[i] + value1
    return floating_point_errors() & 9 | (1 if any_invalid else 0) | (12 if any_infinite else 0)


# absolute_greater_equal_where_equal_divide_3455a808, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: complex64 [unit]


def point(a, b, s0, s1, s2):
    t0 = fabs(s0)                                 # float32  absolute
    t1 = fabs(s1)                                 # float32  absolute
    t2 = t0 >= t1                                 # bool  greater_equal
    t3 = s1 if t2 else s0                         # float32  where
    t4 = s0 if t2 else s1                         # float32  where
    t5 = t4 == s1                                 # bool  equal
    t6 = s2 if t5 else t4                         # float32  where
    t7 = t3 / t6                                  # float32  divide
    t8 = s2 if t2 else t7                         # float32  where
    t9 = a * t8                                   # float32  multiply
    t10 = s1 if t5 else b                         # float32  where
    t11 = t7 if t2 else s2                        # float32  where
    t12 = t10 * t11                               # float32  multiply
    t13 = t9 + t12                                # float32  add
    t14 = t3 * t7                                 # float32  multiply
    t15 = t4 + t14                                # float32  add
    t16 = s2 / t15                                # float32  divide
    t17 = t13 * t16                               # float32  multiply
    t18 = b * t8                                  # float32  multiply
    t19 = s1 if t5 else a                         # float32  where
    t20 = t19 * t11                               # float32  multiply
    t21 = t18 - t20                               # float32  subtract
    t22 = t21 * t16                               # float32  multiply
    t23 = complex64(complex(t17, t22))            # complex64  complex
    return t23


def kernel(a, b, out, s0, s1, s2, n0):
    clear_floating_point_errors()
    for i in range(n0):
        out[i] = point(a[i], b[i], s0, s1, s2)
    return floating_point_errors() & 13
