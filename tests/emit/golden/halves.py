# multiply_add_greater_370cff07, written by gpusched
#   a: float16 [unit]
#   b: float16 [unit]
#   out0: float16 [unit]
#   out1: float16 [unit]


def point(a_half, b_half, s0):
    a = from_float16(a_half)
    b = from_float16(b_half)
    t0 = round_to_float16(a * b)                  # float16  multiply
    t1 = round_to_float16(t0 + s0)                # float16  add
    t2 = a > b                                    # bool  greater
    t3 = round_to_float16(float32(t2))            # float16  astype_float16
    t4 = round_to_float16(t3 * a)                 # float16  multiply
    invalid = ((t0 != t0) & (a == a) & (b == b))
    invalid = invalid | ((t1 != t1) & (t0 == t0) & (s0 == s0))
    invalid = invalid | ((t4 != t4) & (t3 == t3) & (a == a))
    infinite = ((fabs(t0) == float32(inf)) & (fabs(a) != float32(inf)) & (fabs(b) != float32(inf)))
    infinite = infinite | ((fabs(t1) == float32(inf)) & (fabs(t0) != float32(inf)) & (fabs(s0) != float32(inf)))
    infinite = infinite | ((fabs(t4) == float32(inf)) & (fabs(t3) != float32(inf)) & (fabs(a) != float32(inf)))
    return to_float16(t1), to_float16(t4), invalid, infinite


def kernel(a, b, out0, out1, s0, n0):
    any_invalid = False
    any_infinite = False
    for i in range(n0):
        out0[i], out1[i], invalid, infinite = point(a[i], b[i], s0)
        any_invalid = any_invalid | invalid
        any_infinite = any_infinite | infinite
    return (1 if any_invalid else 0) | (12 if any_infinite else 0)
