# greater_where_last_number_segments_aff5c709, written by gpusched
#   a: float32 [strided, strided]
#   b: int64 [strided, broadcast]
#   out: float32 [labelled, unit]


def last_number(before, value):
    return value if value == value else before


def point(a, s0):
    t0 = a > float32(3.0)                         # bool  greater
    t1 = s0 if t0 else a                          # float32  where
    return t1


def kernel(a, b, out, s0, n0, n1, a_s0, a_s1, b_s0, out_s0):
    for start in range(0, n1, 8):
        count = min(8, n1 - start)
        a_block = shift(a, start * a_s1)
        out_block = shift(out, start)
        for i0 in range(n0):
            a_0 = shift(a_block, i0 * a_s0)
            b_0 = shift(b, i0 * b_s0)
            label = b_0[0]
            if label >= 0:
                out_0 = shift(out_block, label * out_s0)
                for i in range(count):
                    value0 = point(element(a_0, i * a_s1), s0)
                    out_0[i] = last_number(out_0[i], value0)
