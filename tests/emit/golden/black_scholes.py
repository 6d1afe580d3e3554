# divide_log_multiply_add_sqrt_9e72a10e, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   c: float32 [unit]
#   out: float32 [unit]


def point(a, b, c, s0, s1, s2, s3):
    t0 = a / b                                    # float32  divide
    t1 = log_f32(t0)                              # float32  log
    t2 = s0 * c                                   # float32  multiply
    t3 = t1 + t2                                  # float32  add
    t4 = sqrt(c)                                  # float32  sqrt
    t5 = s1 * t4                                  # float32  multiply
    t6 = t3 / t5                                  # float32  divide
    t7 = t6 * s2                                  # float32  multiply
    t8 = erf_f32(t7)                              # float32  erf
    t9 = t8 + float32(1.0)                        # float32  add
    t10 = a * t9                                  # float32  multiply
    t11 = t10 / float32(2.0)                      # float32  divide
    t12 = s3 * c                                  # float32  multiply
    t13 = exp_f32(t12)                            # float32  exp
    t14 = b * t13                                 # float32  multiply
    t15 = t6 - t5                                 # float32  subtract
    t16 = t14 * t15                               # float32  multiply
    t17 = t11 - t16                               # float32  subtract
    invalid = ((t1 != t1) & (t0 == t0))
    infinite = ((fabs(t1) == float32(inf)) & (fabs(t0) != float32(inf)))
    infinite = infinite | ((fabs(t13) == float32(inf)) & (fabs(t12) != float32(inf)))
    return t17, invalid, infinite


def kernel(a, b, c, out, s0, s1, s2, s3, n0):
    clear_floating_point_errors()
    any_invalid = False
    any_infinite = False
    for i in range(n0):
        out[i], invalid, infinite = point(a[i], b[i], c[i], s0, s1, s2, s3)
        any_invalid = any_invalid | invalid
        any_infinite = any_infinite | infinite
    return floating_point_errors() & 13 | (1 if any_invalid else 0) | (12 if any_infinite else 0)
