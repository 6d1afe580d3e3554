# real_multiply_imag_subtract_isfinite_f0528b84, written by gpusched
#   a: complex64 [strided, unit]
#   out0: float32 [broadcast, unit]
#   out1: float32 [broadcast, unit]


def point(a, s0, s1, s2, s3, s4, s5, s6, s7, s8):
    t0 = a.real                                   # float32  real
    t1 = t0 * s0                                  # float32  multiply
    t2 = a.imag                                   # float32  imag
    t3 = t2 * s1                                  # float32  multiply
    t4 = t1 - t3                                  # float32  subtract
    t5 = (t4 == t4) & (fabs(t4) != float32(inf))  # bool  isfinite
    t6 = t0 * s1                                  # float32  multiply
    t7 = t2 * s0                                  # float32  multiply
    t8 = t6 + t7                                  # float32  add
    t9 = t8 != t8                                 # bool  isnan
    t10 = t5 & t9                                 # bool  bitwise_and
    t11 = t4 != t4                                # bool  isnan
    t12 = t9 ^ True                               # bool  invert
    t13 = t11 & t12                               # bool  bitwise_and
    t14 = t8 != s0                                # bool  not_equal
    t15 = t13 & t14                               # bool  bitwise_and
    t16 = t10 | t15                               # bool  bitwise_or
    t17 = s2 if t16 else s3                       # float64  where
    t18 = int32(to_int32(t17))                    # int32  astype_int32
    t19 = t18 <= int32(0)                         # bool  less_equal
    t20 = t16 & t19                               # bool  bitwise_and
    t21 = t4 == s5                                # bool  equal
    t22 = (t8 == t8) & (fabs(t8) != float32(inf))  # bool  isfinite
    t23 = t22 ^ True                              # bool  invert
    t24 = t21 & t23                               # bool  bitwise_and
    t25 = t4 == s6                                # bool  equal
    t26 = t25 & t23                               # bool  bitwise_and
    t27 = t4 > s7                                 # bool  greater
    t28 = t4 < s6                                 # bool  less
    t29 = t27 & t28                               # bool  bitwise_and
    t30 = t4 - s7                                 # float32  subtract
    t31 = t30 if t29 else t4                      # float32  where
    t32 = exp_f32(t31)                            # float32  exp
    t33 = cos_f32(t8)                             # float32  cos
    t34 = t32 * t33                               # float32  multiply
    t35 = s8 if t29 else s1                       # float32  where
    t36 = t34 * t35                               # float32  multiply
    t37 = s6 if t26 else t36                      # float32  where
    t38 = s0 if t24 else t37                      # float32  where
    t39 = s4 if t20 else t38                      # float32  where
    t40 = copysign(s0, t8)                        # float32  copysign
    t41 = t8 == s0                                # bool  equal
    t42 = sin_f32(t8)                             # float32  sin
    t43 = t32 * t42                               # float32  multiply
    t44 = t43 * t35                               # float32  multiply
    t45 = t8 if t41 else t44                      # float32  where
    t46 = t40 if t24 else t45                     # float32  where
    wrong = (not (fabs(t17) < float64(2147483648)))
    wrong = wrong | unseen(t30)
    wrong = wrong | (fabs(t8) == float32(inf))
    wrong = wrong | unseen(t36)
    wrong = wrong | unseen(t44)
    return t39, t46, wrong


def kernel(a, out0, out1, s0, s1, s2, s3, s4, s5, s6, s7, s8, n0, n1, a_s0):
    clear_floating_point_errors()
    any_wrong = False
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        for i in range(n1):
            value0, value1, wrong = point(a_0[i], s0, s1, s2, s3, s4, s5, s6, s7, s8)
            any_wrong = any_wrong | wrong
            out0[i] = out0[i] + value0
            out1[i] = out1[i] + value1
    return (13 if any_wrong else 0) or floating_point_errors() & 9


# absolute_greater_equal_isnan_bitwise_or_where_8d8742d3, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: complex64 [unit]


def point(a, b, s0, s1, s2, s3, s4):
    t0 = fabs(s0)                                 # float32  absolute
    t1 = fabs(s1)                                 # float32  absolute
    t2 = t0 >= t1                                 # bool  greater_equal
    t3 = s0 != s0                                 # bool  isnan
    t4 = s1 != s1                                 # bool  isnan
    t5 = t3 | t4                                  # bool  bitwise_or
    t6 = s2 if t5 else s3                         # float64  where
    t7 = int32(to_int32(t6))                      # int32  astype_int32
    t8 = t7 <= int32(0)                           # bool  less_equal
    t9 = t5 & t8                                  # bool  bitwise_and
    t10 = t9 ^ True                               # bool  invert
    t11 = t2 & t10                                # bool  bitwise_and
    t12 = s1 if t11 else s0                       # float32  where
    t13 = s0 if t11 else s1                       # float32  where
    t14 = t13 == s1                               # bool  equal
    t15 = s4 if t14 else t13                      # float32  where
    t16 = t12 / t15                               # float32  divide
    t17 = s4 if t11 else t16                      # float32  where
    t18 = a * t17                                 # float32  multiply
    t19 = s1 if t14 else b                        # float32  where
    t20 = t16 if t11 else s4                      # float32  where
    t21 = t19 * t20                               # float32  multiply
    t22 = t18 + t21                               # float32  add
    t23 = t12 * t16                               # float32  multiply
    t24 = t13 + t23                               # float32  add
    t25 = s4 / t24                                # float32  divide
    t26 = t22 * t25                               # float32  multiply
    t27 = b * t17                                 # float32  multiply
    t28 = s1 if t14 else a                        # float32  where
    t29 = t28 * t20                               # float32  multiply
    t30 = t27 - t29                               # float32  subtract
    t31 = t30 * t25                               # float32  multiply
    t32 = complex64(complex(t26, t31))            # complex64  complex
    wrong = (not (fabs(t6) < float64(2147483648)))
    return t32, wrong


def kernel(a, b, out, s0, s1, s2, s3, s4, n0):
    clear_floating_point_errors()
    any_wrong = False
    for i in range(n0):
        out[i], wrong = point(a[i], b[i], s0, s1, s2, s3, s4)
        any_wrong = any_wrong | wrong
    return (13 if any_wrong else 0) or floating_point_errors() & 13
