# add_windows_05af25fa, written by gpusched
#   a: float32 [strided, strided, unit]
#   out: float64 [strided, broadcast, unit]


def point(a):
    return a


def kernel(a, out, n0, n1, n2, a_s0, a_s1, out_s0):
    clear_floating_point_errors()
    out_joined = scratch(out)
    out_next = scratch(out)
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        out_0 = shift(out, i0 * out_s0)
        for number in range((n2 + (1025 - n1) - 1) // (1025 - n1)):
            start = number * (1025 - n1)
            count = min(1025 - n1, n2 - start)
            a_block = shift(a_0, start)
            out_block = shift(out_0, start)
            left, before, length, size = n1, 0, 1, count + n1 - 1
            for i in range(size):
                out_joined[i] = point(a_block[i])
            for i in range(count):
                out_block[i] = float64(0.0)
            while left > 0:
                if left % 2 == 1:
                    out_rest = shift(out_joined, before)
                    for i in range(count):
                        out_block[i] = out_block[i] + out_rest[i]
                    before = before + length
                left = left // 2
                size = size - length if left > 0 else 0
                out_rest = shift(out_joined, length)
                for i in range(size):
                    out_next[i] = out_joined[i] + out_rest[i]
                length = 2 * length
                if left % 2 == 1:
                    out_rest = shift(out_next, before)
                    for i in range(count):
                        out_block[i] = out_block[i] + out_rest[i]
                    before = before + length
                left = left // 2
                size = size - length if left > 0 else 0
                out_rest = shift(out_next, length)
                for i in range(size):
                    out_joined[i] = out_next[i] + out_rest[i]
                length = 2 * length
    return floating_point_errors() & 9
