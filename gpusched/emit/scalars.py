"""Scalar functions that kernels call where one Python expression is not enough.

Each is plain Python over numbers of one dtype; the caller converts the result back to it.  A
kernel's source contains those it uses, so that it can be read and stepped through on its own; the
names they call (`floor`, `fmod`, `copysign`, ...) are bound by the backend.  They follow NumPy's
own C code (``numpy/_core/src/npymath/npy_math_internal.h.src`` and ``umath/loops.c.src``), whose
results they must reproduce.
"""

from __future__ import annotations

from math import copysign, exp, exp2, floor, fmod, inf, log1p, trunc
from typing import Any

from numpy import floor_divide, maximum, minimum, remainder

Number = Any


def floor_divide_int(a: Number, b: Number, minus_a: Number) -> Number:
    if b == 0:
        return a * 0
    if b == -1:
        return minus_a
    return floor_divide(a, b)


def remainder_int(a: Number, b: Number) -> Number:
    if b == 0 or b == -1:
        return a * 0
    return remainder(a, b)


def floor_divide_uint(a: Number, b: Number) -> Number:
    return a * b if b == 0 else floor_divide(a, b)


def remainder_uint(a: Number, b: Number) -> Number:
    return b if b == 0 else remainder(a, b)


def fmod_int(a: Number, b: Number) -> Number:
    if b == 0 or b == -1:
        return a * 0
    rest = remainder(a, b)
    return rest - b if rest != 0 and (a < 0) != (b < 0) else rest


def remainder_float(a: Number, b: Number) -> Number:
    rest = fmod(a, b)
    if b == 0:
        return rest
    if rest == 0:
        return copysign(rest, b)
    return rest + b if (b < 0) != (rest < 0) else rest


def floor_divide_float(a: Number, b: Number, one: Number) -> Number:
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


def modf_fraction(x: Number, zero: Number) -> Number:
    return copysign(zero if x - x != 0 and x == x else x - trunc(x), x)


def power_int(base: Number, exponent: Number, one: Number) -> Number:
    result = one
    while exponent > 0:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent = exponent >> 1
    return result


def minimum_float(a: Number, b: Number) -> Number:
    # The second of equal numbers, such as zeros of different signs, as x86's instructions give.
    least = a if a < b else b
    return a if a != a else least


def maximum_float(a: Number, b: Number) -> Number:
    greatest = a if a > b else b
    return a if a != a else greatest


def clip_float(x: Number, low: Number, high: Number) -> Number:
    # Of bounds that are scalars: a zero stays as it is.
    above = low if x < low else x
    inside = high if above > high else above
    found = high if high != high else inside
    return low if low != low else found


def heaviside_float(x: Number, at_zero: Number, zero: Number, one: Number) -> Number:
    side = zero if x < 0 else one
    found = at_zero if x == 0 else side
    # Asked last, so that it is not known of the numbers that are compared.
    return found if x == x else x


def sign_float(x: Number, zero: Number, one: Number) -> Number:
    positive = one if x > 0 else zero
    found = -one if x < 0 else positive
    return found if x == x else x


def last_number(before: Number, value: Number) -> Number:
    return value if value == value else before


def logaddexp_float(a: Number, b: Number) -> Number:
    difference = a - b
    top = a if difference > 0 else b
    rest = log1p(exp(-abs(difference)))
    return a + 0.6931471805599453 if a == b else top + rest


def logaddexp2_float(a: Number, b: Number) -> Number:
    difference = a - b
    top = a if difference > 0 else b
    rest = 1.4426950408889634 * log1p(exp2(-abs(difference)))
    return a + 1.0 if a == b else top + rest


def deviation(value: Number, mean: Number) -> Number:
    # A function of its own, so that no compiler takes the mean from the sum instead.
    return value - mean


def reopened(rest: Number, squares: Number, count: Number) -> tuple[Number, Number]:
    # What deviations of `count` numbers from a mean add up to, and their squares, given those from
    # this mean and `rest`, what rounding it has lost.
    apart = count * rest
    return apart, squares + apart * rest


def settled(
    mean: Number, apart: Number, square: Number, count: Number
) -> tuple[Number, Number, Number]:
    # Mean, rest and squares of `count` numbers whose deviations from `mean` add up to `apart`, and
    # the squares of these to `square`.
    change = apart / count
    left = square - apart * change
    # Rounding may leave less than nothing; the product may overflow where the squares have.
    left = square if square == inf and abs(apart) < inf else (0.0 if left < 0 else left)
    moved = mean + change
    return moved, (mean - moved) + change, left


def join_moments(
    mean: Number,
    rest: Number,
    squares: Number,
    count: Number,
    other_mean: Number,
    other_rest: Number,
    other_squares: Number,
    more: Number,
) -> tuple[Number, Number, Number]:
    if count == 0:
        return other_mean, other_rest, other_squares
    share = more / (count + more)
    apart = (other_mean - mean) + (other_rest - rest)
    change = rest + apart * share
    moved = mean + change
    joined = squares + other_squares + apart * apart * (count * share)
    return moved, (mean - moved) + change, joined


def is_above(a: Number, b: Number) -> bool:
    # Whether a search for the largest number takes `a` rather than `b`, which comes first.
    return (a > b) | ((a != a) & (b == b))


def is_below(a: Number, b: Number) -> bool:
    return (a < b) | ((a != a) & (b == b))


def search_right(x: Number, table: Any, steps: int) -> int:
    # How many of 2**steps - 1 sorted numbers are not more than `x`; all of them, if that is NaN.
    at, step = 0, 1 << (steps - 1)
    while step > 0:
        at += 0 if x < table[at + step - 1] else step
        step >>= 1
    return at


def search_left(x: Number, table: Any, steps: int) -> int:
    # How many of 2**steps - 1 sorted numbers are less than `x`; all of them, if that is NaN.
    at, step = 0, 1 << (steps - 1)
    while step > 0:
        at += 0 if x <= table[at + step - 1] else step
        step >>= 1
    return at


def interpolated(x: Number, lines: Any, place: int) -> Number:
    # What `numpy.interp` gives between two sorted points, of which `place` are not more than `x`.
    # The line through them is four numbers: the point on the left, the slope, the value there, and
    # the value everywhere else if the slope is NaN.
    k = 4 * place
    low, slope, first, constant = lines[k], lines[k + 1], lines[k + 2], lines[k + 3]
    found = slope * (x - low) + first
    # Without a branch, which processors would have to guess.
    found = constant if slope != slope else found
    found = first if x == low else found
    return x if x != x else found


def selected(lane: Any, length: int, rank: int, infinity: Number, nothing: Number) -> Number:
    # The number of a rank, from 0 on, among `length` numbers; NaN ranks behind all others. Each
    # pass counts what is not more than a guess, and finds the next number, so that the answer stays
    # between `low`, whose rank is `first`, and `high`, which `last` numbers are not more than.
    low, high, last = infinity, -infinity, 0
    for i in range(length):
        x = lane[i]
        low = minimum(low, x if x == x else infinity)
        high = maximum(high, x if x == x else -infinity)
        last += 1 if x == x else 0
    if rank < 0 or rank >= last:
        return nothing
    first, at, jump, lowered, slow = 0, 0, (length * 633 >> 10) | 1, False, False
    while first < rank and low < high:
        # A little beside where the answer is if numbers are equally far apart, on the side of the
        # bound that has not moved.
        span = last - first
        margin = 1 + (span >> 5)
        share = (rank - first + (margin if lowered else -margin)) / span
        guess = low + (high - low) * share
        if slow or not (guess >= low and guess < high):
            # Where they are not, one of them, from anywhere in the lane.
            guess = low
            for _ in range(length if span > 16 else 0):
                at += jump
                at -= length if at >= length else 0
                if lane[at] >= low and lane[at] < high:
                    guess = lane[at]
                    break
        count, above = 0, infinity
        for i in range(length):
            x = lane[i]
            above = minimum(above, x if x > guess else infinity)
            count += 1 if x <= guess else 0
        lowered = count > rank
        if not lowered:
            low, first = above, count
        elif guess == low:
            return low
        else:
            high, last = guess, count
        slow = 3 * (last - first) > 2 * span
    return low


def ordered(lane: Any, length: int, rank: int, nothing: Number) -> Number:
    # The same, of numbers in order, where NaN are behind all others.
    return lane[rank] if rank >= 0 and rank < length else nothing


def following(
    lane: Any, length: int, rank: int, before: Number, infinity: Number, nothing: Number
) -> Number:
    # The same, where the number of the rank before is known.
    count, numbers, above = 0, 0, infinity
    for i in range(length):
        x = lane[i]
        above = minimum(above, x if x > before else infinity)
        count += 1 if x <= before else 0
        numbers += 1 if x == x else 0
    if rank >= numbers:
        return nothing
    return before if count > rank else above
