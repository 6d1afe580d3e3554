# divide_multiply_scan_72ba13b1, written by gpusched
#   a: float16 [strided, unit]
#   out: float16 [strided, unit]


def point(a_half):
    a = from_float16(a_half)
    t0 = round_to_float16(a / float32(3.0))       # float16  divide
    wrong = (is_worse(t0, a))
    return to_float16(t0), wrong


def kernel(a, out, n0, n1, a_s0, out_s0):
    clear_floating_point_errors()
    any_wrong = False
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        total0 = float32(1.0)
        for start in range(0, n1, 512):
            count = min(512, n1 - start)
            a_block = shift(a_0, start)
            out_block = shift(out_0, start)
            for i in range(count):
                out_block[i], wrong = point(a_block[i])
                any_wrong = any_wrong | wrong
            for i in range(count):
                total0 = round_to_float16(total0 * from_float16(out_block[i]))
                out_block[i] = to_float16(total0)
    return (13 if any_wrong else 0) or (floating_point_errors() & 9) << 8
