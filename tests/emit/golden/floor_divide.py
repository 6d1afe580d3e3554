# floor_divide_remainder_dadf7cea, written by gpusched
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
    wrong = (is_worse(t0, a) & is_worse(t0, b))
    wrong = wrong | (is_worse(t1, t0))
    return t1, wrong


def kernel(a, b, out, n0):
    any_wrong = False
    for i in range(n0):
        out[i], wrong = point(a[i], b[i])
        any_wrong = any_wrong | wrong
    return (13 if any_wrong else 0)
