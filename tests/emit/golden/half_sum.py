# multiply_add_reduce_d5d92f80, written by gpusched
#   a: float16 [unit]
#   out: float64 [broadcast]


def point(a_half):
    a = from_float16(a_half)
    t0 = round_to_float16(a * a)                  # float16  multiply
    invalid = ((t0 != t0) & (a == a))
    infinite = ((fabs(t0) == float32(inf)) & (fabs(a) != float32(inf)))
    return t0, invalid, infinite


def kernel(a, out, n0):
    clear_floating_point_errors()
    any_invalid = False
    any_infinite = False
    total0 = float64(0.0)
    lost0 = float64(0.0)
    blocks = (n0 + 127) // 128
    for number in range(blocks):
        start = spread(number, blocks, 4) * 128
        count = min(128, n0 - start)
        a_block = shift(a, start)
        prefetch(a_block, ahead(512), count)
        part0 = float32(0.0)
        for i in range(count):
            value0, invalid, infinite = point(a_block[i])
            any_invalid = any_invalid | invalid
            any_infinite = any_infinite | infinite
            part0 = part0 + value0
        total0, lost0 = compensated_add(total0, lost0, part0)
    total0 = total0 + lost0 if lost0 != 0 else total0
    out[0] = out[0] + total0
    return (floating_point_errors() & 9) << 8 | (1 if any_invalid else 0) | (12 if any_infinite else 0)
