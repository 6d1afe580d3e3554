# maximum_windows_4f0a4e3e, written by gpusched
#   a: float32 [strided, strided, unit]
#   out: float32 [strided, broadcast, unit]


def point(a):
    return a


def kernel(a, out, n0, n1, n2, a_s0, a_s1, out_s0):
    out_joined = scratch(out)
    for start in range(0, n2, 256):
        count = min(256, n2 - start)
        a_block = shift(a, start)
        out_block = shift(out, start)
        for number in range((n0 + n1 - 1) // n1):
            first = number * n1
            last = min(first + n1, n0) - 1
            for i in range(count):
                out_joined[i] = float32(-inf)
            for row in range(first + n1 - 1, first - 1, -1):
                window = min(row, last)
                a_row = shift(a_block, row * a_s0)
                out_row = shift(out_block, window * out_s0)
                for i in range(count):
                    value0 = point(a_row[i])
                    out_joined[i] = maximum(value0, out_joined[i])
                    out_row[i] = out_joined[i]
            for i in range(count):
                out_joined[i] = float32(-inf)
            for row in range(first + n1, last + n1):
                window = row - n1 + 1
                a_row = shift(a_block, row * a_s0)
                out_row = shift(out_block, window * out_s0)
                for i in range(count):
                    value0 = point(a_row[i])
                    out_joined[i] = maximum(out_joined[i], value0)
                    out_row[i] = maximum(out_row[i], out_joined[i])
