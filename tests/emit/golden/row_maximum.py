# multiply_maximum_reduce_72271c63, written by gpusched
#   a: float32 [strided, strided]
#   out: float32 [strided, broadcast]


def point(a):
    t0 = a * float32(3.0)                         # float32  multiply
    invalid = ((t0 != t0) & (a == a))
    infinite = ((fabs(t0) == float32(inf)) & (fabs(a) != float32(inf)))
    return t0, invalid, infinite


def kernel(a, out, n0, n1, a_s0, a_s1, out_s0):
    any_invalid = False
    any_infinite = False
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        total0 = float32(-inf)
        blocks = (n1 + 127) // 128
        for number in range(blocks):
            start = spread(number, blocks, 4) * 128
            count = min(128, n1 - start)
            a_block = shift(a_0, start * a_s1)
            part0 = float32(-inf)
            for i in range(count):
                value0, invalid, infinite = point(element(a_block, i * a_s1))
                any_invalid = any_invalid | invalid
                any_infinite = any_infinite | infinite
                part0 = maximum(part0, value0)
            total0 = maximum(total0, part0)
        out_0[0] = maximum(out_0[0], total0)
    return (1 if any_invalid else 0) | (12 if any_infinite else 0)
