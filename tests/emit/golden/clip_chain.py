# add_multiply_subtract_divide_clip_87b10832, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: float32 [unit]


def clip_float(x, low, high):
    above = low if x < low else x
    inside = high if above > high else above
    found = high if high != high else inside
    return low if low != low else found


def point(a, b, s0):
    t0 = a + b                                    # float32  add
    t1 = t0 * a                                   # float32  multiply
    t2 = t1 - b                                   # float32  subtract
    t3 = t2 / float32(2.0)                        # float32  divide
    t4 = clip_float(t3, float32(0.0), s0)         # float32  clip
    return t4


def kernel(a, b, out, s0, n0):
    clear_floating_point_errors()
    for i in range(n0):
        out[i] = point(a[i], b[i], s0)
    return floating_point_errors() & 13
