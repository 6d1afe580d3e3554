# multiply_first_minimum_reduce_place_reduce_cf18e393, written by gpusched
#   a: float32 [strided, unit]
#   out0: float32 [strided, broadcast]
#   out1: int64 [strided, broadcast]


def is_below(a, b):
    return (a < b) | (a != a) & (b == b)


def point(a):
    t0 = a * float32(2.0)                         # float32  multiply
    return t0, t0


def kernel(a, out0, out1, n0, n1, a_s0, out0_s0, out1_s0):
    clear_floating_point_errors()
    values0 = scratch(out0)
    a_ahead = ahead(a_s0 if n1 <= 8192 else 256)
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out0_0 = shift(out0, i0 * out0_s0)
        out1_0 = shift(out1, i0 * out1_s0)
        total0 = float32(inf)
        place0 = n1
        blocks = (n1 + 127) // 128
        for number in range(blocks):
            start = spread(number, blocks, 4) * 128
            count = min(128, n1 - start)
            a_block = shift(a_0, start)
            prefetch(a_block, a_ahead, count)
            part0 = float32(inf)
            for i in range(count):
                value0, value1 = point(a_block[i])
                values0[i] = value0
                part0 = minimum(part0, value0)
            if is_below(part0, total0) or (start < place0 and not is_below(total0, part0)):
                total0 = part0
                place0 = count
                for i in range(count):
                    place0 = min(place0, count if is_below(total0, values0[i]) else i)
                place0 = start + place0
        if is_below(total0, out0_0[0]):
            out0_0[0] = total0
            out1_0[0] = place0
    return floating_point_errors() & 9
