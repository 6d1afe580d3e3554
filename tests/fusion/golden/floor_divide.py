# floor_divide_remainder_f77f397a, written by gpusched
#   a: float32 [unit]
#   b: float32 [unit]
#   out: float32 [unit]


def remainder_float(a, b):
    rest = fmod(a, b)
    if b == 0:
        return rest
    if rest == 0:
        return copysign(rest, b)
    return rest + b if (b < 0) != (rest < 0) else rest


def floor_divide_float(a, b, one):
    if b == 0:
        return a / b
    rest = fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0 and (b < 0) != (rest < 0):
        quotient = quotient - one
    if quotient == 0:
        return copysign(quotient, a / b)
    whole = floor(quotient)
    return whole + one if quotient - whole > 0.5 else whole


def point(a, b):
    t0 = float32(floor_divide_float(a, b, float32(1)))  # float32  floor_divide
    t1 = float32(remainder_float(t0, float32(3.0)))  # float32  remainder
    return t1


def kernel(a, b, out, n0):
    for i in range(n0):
        out[i] = point(a[i], b[i])
