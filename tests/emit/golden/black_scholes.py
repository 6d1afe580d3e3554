# divide_log_multiply_add_sqrt_27af2e93, written by gpusched
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
    wrong = (t0 <= float32(0))
    return t17, wrong


def kernel(a, b, c, out, s0, s1, s2, s3, n0):
    clear_floating_point_errors()
    any_wrong = False
    for i in range(n0):
        out[i], wrong = point(a[i], b[i], c[i], s0, s1, s2, s3)
        any_wrong = any_wrong | wrong
    return (13 if any_wrong else 0) or floating_point_errors() & 13
