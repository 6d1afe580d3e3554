# multiply_add_add_reduce_e70eae72, written by gpusched
#   a: float32 [strided, unit]
#   out: float32 [broadcast, unit]


def point(a, s0):
    t0 = a * float32(3.0)                         # float32  multiply
    t1 = t0 + s0                                  # float32  add
    return t1


def kernel(a, out, s0, n0, n1, a_s0):
    clear_floating_point_errors()
    last = n0 - n0 % 8
    last = 0 if n1 > 64 and n1 <= 2048 else last
    for i0 in range(0, last, 8):
        a_0 = shift(a, i0 * a_s0)
        a_0_row1 = shift(a_0, 1 * a_s0)
        a_0_row2 = shift(a_0, 2 * a_s0)
        a_0_row3 = shift(a_0, 3 * a_s0)
        a_0_row4 = shift(a_0, 4 * a_s0)
        a_0_row5 = shift(a_0, 5 * a_s0)
        a_0_row6 = shift(a_0, 6 * a_s0)
        a_0_row7 = shift(a_0, 7 * a_s0)
        for i in range(n1):
            value0 = point(a_0[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row1[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row2[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row3[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row4[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row5[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row6[i], s0)
            out[i] = out[i] + value0
            value0 = point(a_0_row7[i], s0)
            out[i] = out[i] + value0
    for i0 in range(last, n0):
        a_0 = shift(a, i0 * a_s0)
        for i in range(n1):
            value0 = point(a_0[i], s0)
            out[i] = out[i] + value0
    return floating_point_errors() & 9
