# real_multiply_imag_negative_subtract_414b4887, written by gpusched
#   a: complex64 [unit]
#   b: complex64 [unit]
#   out: complex64 [unit]


def point(a, b):
    t0 = a.real                                   # float32  real
    t1 = b.real                                   # float32  real
    t2 = t0 * t1                                  # float32  multiply
    t3 = a.imag                                   # float32  imag
    t4 = b.imag                                   # float32  imag
    t5 = -t4                                      # float32  negative
    t6 = t3 * t5                                  # float32  multiply
    t7 = t2 - t6                                  # float32  subtract
    t8 = t7 + float32(0.0)                        # float32  add
    t9 = t0 * t5                                  # float32  multiply
    t10 = t3 * t1                                 # float32  multiply
    t11 = t9 + t10                                # float32  add
    t12 = t11 + float32(1.0)                      # float32  add
    t13 = complex64(complex(t8, t12))             # complex64  complex
    return t13


def kernel(a, b, out, n0):
    clear_floating_point_errors()
    for i in range(n0):
        out[i] = point(a[i], b[i])
    return floating_point_errors() & 9
