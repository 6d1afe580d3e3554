# multiply_add_reduce_e0929453, written by gpusched
#   a: float16 [unit]
#   out: float64 [broadcast]


def point(a_half):
    a = from_float16(a_half)
    t0 = round_to_float16(a * a)                  # float16  multiply
    wrong = (is_worse(t0, a))
    return t0, wrong


def kernel(a, out, n0):
    clear_floating_point_errors()
    any_wrong = False
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
            value0, wrong = point(a_block[i])
            any_wrong = any_wrong | wrong
            part0 = part0 + value0
        total0, lost0 = compensated_add(total0, lost0, part0)
    total0 = total0 + lost0 if lost0 != 0 else total0
    out[0] = out[0] + total0
    return (13 if any_wrong else 0) or (floating_point_errors() & 9) << 8
