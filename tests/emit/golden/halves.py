# multiply_add_greater_60d5bdf9, written by gpusched
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
    wrong = (is_worse(t0, a) & is_worse(t0, b))
    wrong = wrong | (is_worse(t1, t0) & is_worse(t1, s0))
    wrong = wrong | (is_worse(t4, t3) & is_worse(t4, a))
    return to_float16(t1), to_float16(t4), wrong


def kernel(a, b, out0, out1, s0, n0):
    any_wrong = False
    for i in range(n0):
        out0[i], out1[i], wrong = point(a[i], b[i], s0)
        any_wrong = any_wrong | wrong
    return (13 if any_wrong else 0)
