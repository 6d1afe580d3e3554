# add_greater_9b758648, written by gpusched
#   a: float32 [unit]
#   out0: float32 [unit]
#   out1: bool [unit]


def point(a):
    t0 = a + float32(1.0)                         # float32  add
    t1 = a > float32(2.0)                         # bool  greater
    return t0, t1


def kernel(a, out0, out1, n0):
    clear_floating_point_errors()
    for i in range(n0):
        out0[i], out1[i] = point(a[i])
    return floating_point_errors() & 9
