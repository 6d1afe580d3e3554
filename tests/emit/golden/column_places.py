# multiply_first_maximum_reduce_place_reduce_121bc274, written by gpusched
#   a: float32 [strided, unit]
#   out0: float32 [broadcast, unit]
#   out1: int64 [broadcast, unit]


def is_above(a, b):
    return (a > b) | (a != a) & (b == b)


def point(a):
    t0 = a * float32(2.0)                         # float32  multiply
    return t0, t0


def kernel(a, out0, out1, n0, n1, a_s0, n_before):
    clear_floating_point_errors()
    last = n0 - n0 % 8
    last = 0 if n1 > 64 and n1 <= 682 else last
    for i0 in range(0, last, 8):
        a_0 = shift(a, i0 * a_s0)
        a_0_row1 = shift(a_0, 1 * a_s0)
        a_0_row2 = shift(a_0, 2 * a_s0)
        a_0_row3 = shift(a_0, 3 * a_s0)
        a_0_row4 = shift(a_0, 4 * a_s0)
        a_0_row5 = shift(a_0, 5 * a_s0)
        a_0_row6 = shift(a_0, 6 * a_s0)
        a_0_row7 = shift(a_0, 7 * a_s0)
        before = n_before + i0
        for i in range(n1):
            value0, value1 = point(a_0[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 0 if takes0 else out1[i]
            value0, value1 = point(a_0_row1[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 1 if takes0 else out1[i]
            value0, value1 = point(a_0_row2[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 2 if takes0 else out1[i]
            value0, value1 = point(a_0_row3[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 3 if takes0 else out1[i]
            value0, value1 = point(a_0_row4[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 4 if takes0 else out1[i]
            value0, value1 = point(a_0_row5[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 5 if takes0 else out1[i]
            value0, value1 = point(a_0_row6[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 6 if takes0 else out1[i]
            value0, value1 = point(a_0_row7[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 7 if takes0 else out1[i]
    for i0 in range(last, n0):
        a_0 = shift(a, i0 * a_s0)
        before = n_before + i0
        for i in range(n1):
            value0, value1 = point(a_0[i])
            takes0 = is_above(value0, out0[i])
            out0[i] = value0 if takes0 else out0[i]
            out1[i] = before + 0 if takes0 else out1[i]
    return floating_point_errors() & 9
