# sqrt_add_segments_7b3d7eb7, written by gpusched
#   a: float32 [strided, unit]
#   b: int64 [strided, broadcast]
#   out: float64 [labelled, unit]


def point(a):
    t0 = sqrt(a)                                  # float32  sqrt
    return t0


def kernel(a, b, out, n0, n1, a_s0, b_s0, out_s0):
    clear_floating_point_errors()
    for start in range(0, n1, 4096):
        count = min(4096, n1 - start)
        a_block = shift(a, start)
        out_block = shift(out, start)
        stop = 0
        while stop < n0:
            first, stop = stop, stop + 1
            while stop < n0 and b[stop * b_s0] == b[first * b_s0]:
                stop = stop + 1
            label = b[first * b_s0]
            if label >= 0:
                out_0 = shift(out_block, label * out_s0)
                last = stop - (stop - first) % 4
                for i0 in range(first, last, 4):
                    a_0 = shift(a_block, i0 * a_s0)
                    a_0_row1 = shift(a_0, 1 * a_s0)
                    a_0_row2 = shift(a_0, 2 * a_s0)
                    a_0_row3 = shift(a_0, 3 * a_s0)
                    for i in range(count):
                        value0 = point(a_0[i])
                        out_0[i] = out_0[i] + value0
                        value0 = point(a_0_row1[i])
                        out_0[i] = out_0[i] + value0
                        value0 = point(a_0_row2[i])
                        out_0[i] = out_0[i] + value0
                        value0 = point(a_0_row3[i])
                        out_0[i] = out_0[i] + value0
                for i0 in range(last, stop):
                    a_0 = shift(a_block, i0 * a_s0)
                    for i in range(count):
                        value0 = point(a_0[i])
                        out_0[i] = out_0[i] + value0
    return floating_point_errors() & 9
