# multiply_maximum_reduce_aa80e3f9, written by gpusched
#   a: float32 [strided, strided]
#   out: float32 [strided, broadcast]


def point(a):
    t0 = a * float32(3.0)                         # float32  multiply
    return t0


def kernel(a, out, n0, n1, a_s0, a_s1, out_s0):
    clear_floating_point_errors()
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
                value0 = point(element(a_block, i * a_s1))
                part0 = maximum(part0, value0)
            total0 = maximum(total0, part0)
        out_0[0] = maximum(out_0[0], total0)
    return floating_point_errors() & 9
