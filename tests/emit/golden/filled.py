# greater_where_isnan_last_number_scan_maximum_scan_abec3c08, written by gpusched
#   a: float32 [strided, unit]
#   b: int16 [strided, broadcast]
#   out0: int16 [strided, unit]
#   out1: float32 [strided, unit]


def last_number(before, value):
    return value if value == value else before


def point(a, b, s0):
    t0 = a > float32(3.0)                         # bool  greater
    t1 = s0 if t0 else a                          # float32  where
    t2 = t1 != t1                                 # bool  isnan
    t3 = int16(0) if t2 else b                    # int16  where
    return t3, t1


def kernel(a, b, out0, out1, s0, n0, n1, a_s0, b_s0, out0_s0, out1_s0, n_before):
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        b_0 = shift(b, i0 * b_s0)
        out0_0 = shift(out0, i0 * out0_s0)
        out1_0 = shift(out1, i0 * out1_s0)
        b_value = b_0[0]
        is_first = n_before + i0 == 0
        out0_before = shift(out0_0, 0 if is_first else -out0_s0)
        if is_first:
            for i in range(n1):
                out0_0[i] = int16(-32768)
        out1_before = shift(out1_0, 0 if is_first else -out1_s0)
        if is_first:
            for i in range(n1):
                out1_0[i] = float32(nan)
        for i in range(n1):
            value0, value1 = point(a_0[i], b_value, s0)
            out0_0[i] = out0_before[i] if out0_before[i] >= value0 else value0
            out1_0[i] = last_number(out1_before[i], value1)


# subtract_less_equal_where_a6f573a5, written by gpusched
#   a: int16 [strided, broadcast]
#   b: int16 [strided, unit]
#   c: float32 [strided, unit]
#   out: float32 [strided, unit]


def point(a, b, c, s0):
    t0 = int16(a - b)                             # int16  subtract
    t1 = t0 <= int16(2)                           # bool  less_equal
    t2 = c if t1 else s0                          # float32  where
    return t2


def kernel(a, b, c, out, s0, n0, n1, a_s0, b_s0, c_s0, out_s0):
    for i0 in range(n0):
        a_0 = shift(a, i0 * a_s0)
        b_0 = shift(b, i0 * b_s0)
        c_0 = shift(c, i0 * c_s0)
        out_0 = shift(out, i0 * out_s0)
        a_value = a_0[0]
        for i in range(n1):
            out_0[i] = point(a_value, b_0[i], c_0[i], s0)
