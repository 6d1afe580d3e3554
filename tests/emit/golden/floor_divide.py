# floor_divide_remainder_5d26d35b, written by gpusched
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
    invalid = ((t0 != t0) & (a == a) & (b == b))
    invalid = invalid | ((t1 != t1) & (t0 == t0))
    infinite = ((fabs(t0) == float32(inf)) & (fabs(a) != float32(inf)) & (fabs(b) != float32(inf)))
    return t1, invalid, infinite


def kernel(a, b, out, n0):
    any_invalid = False
    any_infinite = False
    for i in range(n0):
        out[i], invalid, infinite = point(a[i], b[i])
        any_invalid = any_invalid | invalid
        any_infinite = any_infinite | infinite
    return (1 if any_invalid else 0) | (12 if any_infinite else 0)
