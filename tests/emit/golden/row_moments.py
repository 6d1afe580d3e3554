# moments_reduce_da453022, written by gpusched
#   a: float32 [strided, unit]
#   out0: float64 [strided, broadcast]
#   out1: float64 [strided, broadcast]
#   out2: float64 [strided, broadcast]


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


def kernel(a, out0, out1, out2, n0, n1, a_s0, out0_s0, out1_s0, out2_s0):
    clear_floating_point_errors()
    a_ahead = ahead(a_s0 if n1 <= 8192 else 256)
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out0_0 = shift(out0, i0 * out0_s0)
        out1_0 = shift(out1, i0 * out1_s0)
        out2_0 = shift(out2, i0 * out2_s0)
        value0, value1, value2 = point(a_0[0])
        mean0 = value0
        apart0 = float64(0.0)
        first = min(64, n1)
        for i in range(first):
            value0, value1, value2 = point(a_0[i])
            apart0 = apart0 + deviation(value0, mean0)
        mean0 = mean0 + apart0 / first
        rest0 = float64(0.0)
        squares0 = float64(0.0)
        before = 0
        blocks = (n1 + 511) // 512
        for number in range(blocks):
            start = spread(number, blocks, 4) * 512
            count = min(512, n1 - start)
            a_block = shift(a_0, start)
            prefetch(a_block, a_ahead, count)
            apart0 = float64(0.0)
            square0 = float64(0.0)
            for i in range(count):
                value0, value1, value2 = point(a_block[i])
                away0 = deviation(value0, mean0)
                apart0 = apart0 + away0
                square0 = square0 + away0 * away0
            opened0, known0 = reopened(rest0, squares0, before)
            mean0, rest0, squares0 = settled(mean0, opened0 + apart0, known0 + square0, before + count)
            before = before + count
        out0_0[0], out1_0[0], out2_0[0] = mean0, rest0, squares0
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
