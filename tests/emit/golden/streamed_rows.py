# subtract_divide_9d23921a, written by gpusched
#   a: float32 [strided, unit]
#   b: float32 [broadcast, unit]
#   out: float32 [strided, unit]


def point(a, b, s0):
    t0 = a - b                                    # float32  subtract
    t1 = t0 / s0                                  # float32  divide
    return t1


def kernel(a, b, out, s0, n0, n1, a_s0, out_s0):
    clear_floating_point_errors()
    out_part = scratch(out)
    a_ahead = a_s0 if n1 <= 8192 else ahead(256)
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        lead = past_line(out_0)
        blocks = (lead + n1 + 127) // 128
        for number in range(blocks):
            first = spread(number, blocks, 4) * 128 - lead
            start = max(first, 0)
            count = min(first + 128, n1) - start
            a_block = shift(a_0, start)
            b_block = shift(b, start)
            prefetch(a_block, a_ahead, count)
            for i in range(count):
                out_part[i] = point(a_block[i], b_block[i], s0)
            stream(shift(out_0, start), out_part, count)
    drain()
    return floating_point_errors() & 13
