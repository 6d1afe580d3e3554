# multiply_subtract_add_scan_707b3f2f, written by gpusched
#   a: float32 [strided, unit]
#   out: float32 [strided, unit]


def point(a):
    t0 = a * float32(2.0)                         # float32  multiply
    t1 = t0 - float32(1.0)                        # float32  subtract
    return t1


def kernel(a, out, n0, n1, a_s0, out_s0, n_before):
    clear_floating_point_errors()
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        is_first = n_before + i0 == 0
        out_before = shift(out_0, 0 if is_first else -out_s0)
        if is_first:
            for i in range(n1):
                out_0[i] = float32(-0.0)
        for i in range(n1):
            value0 = point(a_0[i])
            out_0[i] = out_before[i] + value0
    return floating_point_errors() & 9
