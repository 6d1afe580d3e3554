# moments_reduce_0bc4e6dc, written by gpusched
#   a: float32 [strided, unit]
#   out0: float64 [broadcast, unit]
#   out1: float64 [broadcast, unit]
#   out2: float64 [broadcast, unit]


def deviation(value, mean):
    return value - mean


def reopened(rest, squares, count):
    apart = count * rest
    return (apart, squares + apart * rest)


def settled(mean, apart, square, count):
    change = apart / count
    left = square - apart * change
    left = square if square == inf and abs(apart) < inf else 0.0 if left < 0 else left
    moved = mean + change
    return (moved, mean - moved + change, left)


def point(a):
    t0 = float64(a)                               # float64  astype
    return t0, t0, t0


def kernel(a, out0, out1, out2, n0, n1, a_s0, n_before):
    clear_floating_point_errors()
    stop = 0
    while stop < n0:
        start, before = stop, n_before + stop
        stop = min(start + max(before, 8), n0)
        if before == 0:
            i0 = start
            a_0 = shift(a, i0 * a_s0)
            for i in range(n1):
                value0, value1, value2 = point(a_0[i])
                out0[i] = value0
        for i in range(n1):
            out1[i], out2[i] = reopened(out1[i], out2[i], before)
        last = stop - (stop - start) % 8
        last = start if n1 > 64 and n1 <= 341 and before > 64 else last
        for i0 in range(start, last, 8):
            a_0 = shift(a, i0 * a_s0)
            a_0_row1 = shift(a_0, 1 * a_s0)
            a_0_row2 = shift(a_0, 2 * a_s0)
            a_0_row3 = shift(a_0, 3 * a_s0)
            a_0_row4 = shift(a_0, 4 * a_s0)
            a_0_row5 = shift(a_0, 5 * a_s0)
            a_0_row6 = shift(a_0, 6 * a_s0)
            a_0_row7 = shift(a_0, 7 * a_s0)
            for i in range(n1):
                value0, value1, value2 = point(a_0[i])
                mean0 = out0[i]
                apart0 = float64(0.0)
                square0 = float64(0.0)
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row1[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row2[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row3[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row4[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row5[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row6[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                value0, value1, value2 = point(a_0_row7[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                out1[i] = out1[i] + apart0
                out2[i] = out2[i] + square0
        for i0 in range(last, stop):
            a_0 = shift(a, i0 * a_s0)
            for i in range(n1):
                value0, value1, value2 = point(a_0[i])
                mean0 = out0[i]
                apart0 = float64(0.0)
                square0 = float64(0.0)
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
                out1[i] = out1[i] + apart0
                out2[i] = out2[i] + square0
        before = n_before + stop
        for i in range(n1):
            out0[i], out1[i], out2[i] = settled(out0[i], out1[i], out2[i], before)
    return floating_point_errors() & 9


# isinf_where_divide_73b163d5, written by gpusched
#   a: float64 [unit]
#   out: float32 [unit]


def point(a, s0):
    t0 = float32(a)                               # float32  astype
    t1 = fabs(t0) == float32(inf)                 # bool  isinf
    t2 = float64(t0)                              # float64  astype
    t3 = t2 if t1 else a                          # float64  where
    t4 = t3 / s0                                  # float64  divide
    t5 = float32(t4)                              # float32  astype
    wrong = unseen(t0)
    return t5, wrong


def kernel(a, out, s0, n0):
    clear_floating_point_errors()
    any_wrong = False
    for i in range(n0):
        out[i], wrong = point(a[i], s0)
        any_wrong = any_wrong | wrong
    return (13 if any_wrong else 0) or floating_point_errors() & 13
