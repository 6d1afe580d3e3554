# subtract_square_add_reduce_eeaa136c, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: float64 [broadcast]


def point(a, b):
    t0 = a - b                                    # float32  subtract
    t1 = t0 * t0                                  # float32  square
    return t1


def kernel(a, b, out, n0):
    clear_floating_point_errors()
    total0 = float64(0.0)
    lost0 = float64(0.0)
    blocks = (n0 + 127) // 128
    for number in range(blocks):
        start = spread(number, blocks, 4) * 128
        count = min(128, n0 - start)
        a_block = shift(a, start)
        b_block = shift(b, start)
        prefetch(a_block, ahead(256), count)
        prefetch(b_block, ahead(256), count)
        part0 = float32(0.0)
        for i in range(count):
            value0 = point(a_block[i], b_block[i])
            part0 = part0 + value0
        total0, lost0 = compensated_add(total0, lost0, part0)
    total0 = total0 + lost0 if lost0 != 0 else total0
    out[0] = out[0] + total0
    return floating_point_errors() & 9
