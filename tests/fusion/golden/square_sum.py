# subtract_square_add_reduce_46fa0b56, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: float64 [broadcast]


def point(a, b):
    t0 = a - b                                    # float32  subtract
    t1 = t0 * t0                                  # float32  square
    return t1


def kernel(a, b, out, n0):
    total0 = float64(-0.0)
    lost0 = float64(-0.0)
    for start in range(0, n0, 512):
        a_block = shift(a, start)
        b_block = shift(b, start)
        part0 = float32(-0.0)
        for i in range(min(512, n0 - start)):
            value0 = point(a_block[i], b_block[i])
            part0 = part0 + value0
        total0, lost0 = compensated_add(total0, lost0, part0)
    total0 = total0 + lost0 if lost0 != 0 else total0
    out[0] = out[0] + total0
