# subtract_divide_6a63908a, written by gpusched
#   a: float32 [strided, unit]
#   b: float32 [broadcast, unit]
#   out: float32 [strided, unit]


def point(a, b, s0):
    t0 = a - b                                    # float32  subtract
    t1 = t0 / s0                                  # float32  divide
    return t1


def kernel(a, b, out, s0, n0, n1, a_s0, out_s0):
    clear_floating_point_errors()
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        for i in range(n1):
            out_0[i] = point(a_0[i], b[i], s0)
    return floating_point_errors() & 13
