"""NumPy's functions of complex numbers, in terms of their parts: in NumPy's own language.

Each is NumPy's algorithm (``numpy/_core/src/umath/loops.c.src``), or that of the C library which
NumPy calls, on arrays of real numbers; these are recorded as all others are. Nothing is computed
below a choice that raises an error, or is compared with care for it: whether a floating-point error
was raised is seen as it is for real numbers. NumPy takes 1.0 to 1.6 times the processor time for
products and comparisons that are added up, 2.5 for quotients, and for all functions from `sqrt` to
`arctanh` 4 to 8 times of complex128, and 7 to 22 of complex64 (2M numbers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add, and_, eq, ne, neg, or_, sub
from typing import Any

import numpy as np

Pair = tuple[Any, Any]
"""Arrays of the real and the imaginary parts."""


def _by_parts(function: Callable[..., Any]) -> Callable[..., Pair]:
    """Return what does with each of both parts what a function does with numbers."""
    return lambda *pairs: (*map(function, *pairs),)


def _across(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """Return a function whose result for `x` is ``i`` times the conjugate of another's.

    That is taken of ``i`` times the conjugate of `x`, so that parts change places: a sine is so a
    hyperbolic sine.
    """
    return lambda a: function(a[::-1])[::-1]


def _multiply(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _invalid(condition: Any) -> Any:
    """Return a condition; where it holds, an invalid operation is reported."""
    # What processors make of a NaN is the least integer, or zero.
    return condition & (np.where(condition, math.nan, 0.0).astype(np.int32) <= 0)


def _is_larger(a: Any, b: Any) -> Any:
    """Return whether a number is as far from zero as another one.

    C's comparisons report NaN, those of NumPy's arrays do not.
    """
    return (np.abs(a) >= np.abs(b)) & ~_invalid(np.isnan(a) | np.isnan(b))


def _divide(a: Pair, b: Pair) -> Pair:
    """Return quotients by Smith's algorithm (1962), without branches.

    Where NumPy has one formula for divisors whose real part is the larger one, and one for others,
    here a factor of 1 and one of the ratio change places, which is exact.
    """
    first = _is_larger(b[0], b[1])
    large: Any = np.where(first, b[0], b[1])
    small: Any = np.where(first, b[1], b[0])
    zero = large == 0
    ratio = small / np.where(zero, 1.0, large)
    scale = 1.0 / (large + small * ratio)
    own, other = np.where(first, 1.0, ratio), np.where(first, ratio, 1.0)
    # Each part is divided by zero on its own: the other one, which may be infinite, is left out.
    real, imaginary = (np.where(zero, 0.0, each) for each in a)
    return (a[0] * own + imaginary * other) * scale, (a[1] * own - real * other) * scale


def _reciprocal(a: Pair) -> Pair:
    first = _is_larger(a[0], a[1])
    large: Any = np.where(first, a[0], a[1])
    small: Any = np.where(first, a[1], a[0])
    ratio = small / large
    divisor = large + small * ratio
    own, other = np.where(first, 1.0, ratio), np.where(first, ratio, 1.0)
    return own / divisor, -other / divisor


def _exp(a: Pair) -> Pair:
    """Return powers of e as the C library does: infinite only where the result is.

    Beyond the largest number whose power is finite, a factor is taken out, since a sine or cosine
    may make the result finite again.
    """
    real, imaginary = a
    limit = 80.0 if real.dtype == np.float32 else 700.0
    large = (real > limit) & (real < math.inf)
    size = np.exp(np.where(large, real - limit, real))
    number = real.dtype.type
    factor = np.where(large, number(math.exp(limit)), number(1.0))
    sine = size * np.sin(imaginary) * factor
    # An infinite size times a zero, and nothing of what has no direction, are not NaN.
    nothing = (real == -math.inf) & ~np.isfinite(imaginary)
    endless = (real == math.inf) & ~np.isfinite(imaginary)
    cosine = np.where(endless, math.inf, size * np.cos(imaginary) * factor)
    turned = np.isnan(real) & ~np.isnan(imaginary) & (imaginary != 0)
    unknown = _invalid((np.isfinite(real) & np.isnan(imaginary)) | turned)
    return (
        np.where(unknown, math.nan, np.where(nothing, 0.0, cosine)),
        np.where(nothing, np.copysign(0.0, imaginary), np.where(imaginary == 0, imaginary, sine)),
    )


def _sqrt(a: Pair) -> Pair:
    """Return square roots as the C library does: those whose real part is not negative.

    Parts are multiplied by powers of two where the size of the number, or the square of it, is out
    of bounds otherwise. Half of the size and of the larger part has no digits that cancel.
    """
    limits = np.finfo(a[0].dtype)
    number = a[0].dtype.type
    known = np.isfinite(a[0]) & np.isfinite(a[1])
    real, imaginary = (np.where(known, each, number(0)) for each in a)
    most = np.maximum(np.abs(real), np.abs(imaginary))
    large, small = most > limits.max / 8, most < limits.tiny * 2.0**limits.nmant
    shift = limits.nmant + 2 & ~1  # even, so that the root of the factor is a power of two
    factor = np.where(large, number(0.0625), np.where(small, number(2.0**shift), number(1)))
    back = np.where(large, number(4), np.where(small, number(2.0 ** (-shift / 2)), number(1)))
    x, y = np.abs(real) * factor, np.abs(imaginary) * factor
    root = np.sqrt((np.hypot(x, y) + x) * number(0.5))
    first: Any = root * back
    second: Any = y * number(0.5) / np.where(root == 0, number(1), root) * back
    right = real >= 0
    endless = np.isinf(a[1]) | (np.isinf(a[0]) & (a[0] > 0))
    left = np.isinf(a[0]) & (a[0] < 0) & ~np.isinf(a[1])
    nothing = number(math.nan)
    # What is infinite along one axis only has a root along that axis, or along the other.
    beside = np.where(np.isnan(a[1]), nothing, number(0))
    found = np.where(right, first, second), np.where(right, second, first)
    unknown = np.where(endless, number(math.inf), np.where(left, beside, nothing))
    size = np.where(np.isinf(a[1]) | left, number(math.inf), np.where(endless, beside, nothing))
    return (
        np.where(known, found[0], unknown),
        np.copysign(np.where(known, found[1], size), a[1]),
    )


def _squared(a: Any) -> Pair:
    """Return squares, and what rounding them has lost (Dekker, 1971)."""
    halves = a * a.dtype.type(4097.0 if a.dtype == np.float32 else 134217729.0)
    high = halves - (halves - a)
    low, square = a - high, a * a
    return square, ((high * high - square) + high * low * 2) + low * low


def _log(a: Pair) -> Pair:
    """Return logarithms as the C library does: exact where the size is nearly one, too.

    The size less one is added up with what rounding loses there, since leading digits cancel.
    """
    number, limits = a[0].dtype.type, np.finfo(a[0].dtype)
    real, imaginary = np.abs(a[0]), np.abs(a[1])
    large, small = np.maximum(real, imaginary), np.minimum(real, imaginary)
    inside = (large >= 0.5) & (large < 2)
    x, y = np.where(inside, large, number(1)), np.where(inside, small, number(0))
    (square, lost), (other, also) = _squared(x), _squared(y)
    near = inside & (square + other >= 0.5)
    one = square - 1
    apart = one + other
    back = apart - one
    rest = (one - (apart - back)) + (other - back) + (lost + also)
    close = np.log1p(np.where(near, apart + rest, number(0))) * number(0.5)
    exponent = limits.nmant + 2
    up = np.where(large < limits.tiny * 2**exponent, number(exponent), number(0))
    shift = np.where(large > limits.max / 4, number(-2), up)
    factor = np.where(shift == 0, number(1), np.where(shift < 0, number(0.25), number(2**exponent)))
    # A power of two, so that its logarithm is as exact as a number can be.
    size = np.hypot(np.where(near, number(1), real) * factor, imaginary * factor)
    far = np.log(size) - shift * number(math.log(2))
    return np.where(near, close, far), np.arctan2(a[1], a[0])


def _scaled(function: Callable[[Pair], Pair], factor: float) -> Callable[[Pair], Pair]:
    """Return a function whose results are multiplied by a real number."""

    def scaled(a: Pair) -> Pair:
        real, imaginary = function(a)
        number = real.dtype.type
        return real * number(factor), imaginary * number(factor)

    return scaled


def _hyperbolic(x: Any) -> tuple[Any, Any, Any]:
    """Return hyperbolic cosines and sines, and a factor that may not be taken into them yet."""
    number, limit = x.dtype.type, 80.0 if x.dtype == np.float32 else 700.0
    large = (np.abs(x) > limit) & (np.abs(x) < math.inf)
    near = np.where(large, number(0), x)
    half = np.exp(np.where(large, np.abs(x) - number(limit), number(0))) * number(0.5)
    factor = np.where(large, number(math.exp(limit)), number(1))
    cosh = np.where(large, half, np.cosh(near))
    return cosh, np.where(large, np.copysign(half, x), np.sinh(near)), factor


def _turned(x: Any, y: Any) -> Any:
    """Return angles; none is infinite where the size is not known, which is no error."""
    return np.where(np.isnan(x) & np.isinf(y), x.dtype.type(math.nan), y)


def _sinh(a: Pair) -> Pair:
    x, y = a
    number = x.dtype.type
    cosh, sinh, factor = _hyperbolic(x)
    angle, known = _turned(x, y), np.isfinite(y)
    unknown = _invalid(np.isfinite(x) & (x != 0) & np.isnan(y))
    real = np.where(unknown, number(math.nan), sinh * np.cos(angle) * factor)
    imaginary = np.where(y == 0, number(1), cosh) * np.sin(angle) * factor
    return (
        np.where(~known & ((x == 0) | np.isinf(x)), np.where(x == 0, x, number(math.inf)), real),
        np.where(y == 0, y, imaginary),
    )


def _cosh(a: Pair) -> Pair:
    x, y = a
    number = x.dtype.type
    cosh, sinh, factor = _hyperbolic(x)
    angle, known = _turned(x, y), np.isfinite(y)
    real = cosh * np.cos(angle) * factor
    imaginary = np.where(y == 0, np.copysign(number(1), x), sinh) * np.sin(angle) * factor
    return (
        np.where(~known & np.isinf(x), number(math.inf), real),
        np.where(~known & (x == 0), number(0), np.where((y == 0) & np.isnan(x), y, imaginary)),
    )


def _tanh(a: Pair) -> Pair:
    """Return hyperbolic tangents as the C library does: by real parts whose squares are finite.

    Beyond these the real part is 1 to the last digit.
    """
    x, y = a
    number = x.dtype.type
    limit = number(10 if x.dtype == np.float32 else 22)
    far, known = np.abs(x) > limit, np.isfinite(y)
    angle = np.where(np.isinf(x) & ~known, number(0), y)
    sine, cosine = np.sin(angle), np.cos(angle)
    near = np.where(far, number(0), x)
    sinh = np.sinh(near)
    divisor = np.where(far, number(1), sinh * sinh + cosine * cosine)
    least = np.exp(-2 * np.where(far, np.abs(x), limit))
    real = np.where(far, np.copysign(number(1), x), sinh * np.cosh(near) / divisor)
    imaginary = sine * cosine * np.where(far, 4 * least, number(1)) / divisor
    nothing = np.where(x == 0, x, number(math.nan))
    straight = (np.isinf(x) & ~known) | (np.isnan(x) & (y == 0))
    return (
        np.where(known | np.isinf(x), real, nothing),
        np.where(straight, np.where(known, y, np.copysign(number(0), y)), imaginary),
    )


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    """Return sizes beyond which a number is its own arcsine, or its logarithm is that of twice it.

    The square of one, and of the inverse of the other, is lost beside 1.
    """
    number = dtype.type
    return (number(1e-4), number(1e4)) if dtype == np.float32 else (number(1e-8), number(1e8))


def _arcs(a: Pair) -> tuple[Any, Any, Any]:
    """Return the parts of arcsines, and the real ones of arccosines (Hull and others, 1997).

    The size of what is one away on either side along the real axis has an ellipse as its level,
    whose axes give both parts; nothing that cancels is subtracted.
    """
    number, eps = a[0].dtype.type, np.finfo(a[0].dtype).eps
    low, high = _limits(a[0].dtype)
    x, y = np.abs(a[0]), np.abs(a[1])
    large, small = (x > high) | (y > high), (x < low) & (y < low)
    x, y = (np.where(large | small, number(0.5), each) for each in (x, y))
    right, left, inside = np.hypot(x + 1, y), np.hypot(x - 1, y), x < 1
    axis = (right + left) * number(0.5)
    apart = np.abs(x - 1)
    beside = left + apart
    # Squares by what is beside them, which is zero only at 1 itself; none is computed alone, since
    # it may be too small for a number. The sums are twice as large as they should be until then.
    flat = y * (y / np.where(beside == 0, number(1), beside))
    first = y * (y / (right + (x + 1)))
    more, less = first + np.where(inside, flat, beside), first + np.where(x <= 1, beside, flat)
    root = np.sqrt((axis + x) * number(0.5) * less)
    logarithm = np.log1p(more * number(0.5) + np.sqrt(more * ((axis + 1) * number(0.5))))
    # Beside the real axis one part is in proportion to the distance from it.
    close = (y <= apart * eps) & (apart > 0)
    slope = np.sqrt(np.where(close, apart * (x + 1), number(1)))
    root = np.where(close & ~inside, y / slope * x, root)
    logarithm = np.where(close & inside, y / slope, logarithm)
    x, y = np.abs(a[0]), np.abs(a[1])
    size = np.hypot(*(np.where(large, each, number(4)) * number(0.25) for each in (x, y)))
    imaginary = np.where(large, np.log(size) + number(math.log(8)), np.where(small, y, logarithm))
    across = np.where(large, y, np.where(small, number(1), root))
    arcsine = np.where(small | ((x == 0) & np.isnan(y)), x, np.arctan2(x, across))
    arccosine = np.where((x == 0) & np.isnan(y), number(math.pi / 2), np.arctan2(across, a[0]))
    return np.copysign(arcsine, a[0]), imaginary, arccosine


def _arcsin(a: Pair) -> Pair:
    real, imaginary, _ = _arcs(a)
    return real, np.copysign(imaginary, a[1])


def _arccos(a: Pair) -> Pair:
    _, imaginary, real = _arcs(a)
    return real, -np.copysign(imaginary, a[1])


def _arccosh(a: Pair) -> Pair:
    _, real, imaginary = _arcs(a)
    # Above the real axis, if that is not known.
    return real, np.copysign(imaginary, np.where(np.isnan(a[1]), a[1].dtype.type(1), a[1]))


def _arctanh(a: Pair) -> Pair:
    """Return inverse hyperbolic tangents as the C library does (Kahan, 1987)."""
    number, eps = a[0].dtype.type, np.finfo(a[0].dtype).eps
    x, y = np.abs(a[0]), np.abs(a[1])
    large = (x > 16 / eps) | (y > 16 / eps)
    pole = (x == 1) & (y < eps)
    one = np.where(large | pole, number(0), x)
    other = np.where(large, number(0), y)
    away = one - 1
    near = np.log1p(4 * one / (away * away + other * other)) * number(0.25)
    close = (number(math.log(2)) - np.log(np.where(pole, y, number(1)))) * number(0.5)
    endless = np.isinf(x) | np.isinf(y)
    lone = np.where(large & ~endless, x, number(0)), np.where(large & ~endless, y, number(1))
    half = np.hypot(lone[0] * number(0.5), lone[1] * number(0.5))
    far = lone[0] / half / half * number(0.25)
    real = np.where(endless, number(0), np.where(large, far, np.where(pole, close, near)))
    real = np.where((x == 0) & np.isnan(y), number(0), real)
    turned = np.arctan2(2 * other, (1 - np.where(large, number(0), x)) * (1 + x) - other * other)
    imaginary = np.where(large, number(math.pi / 2), turned * number(0.5))
    unknown = np.isnan(y) | (np.isnan(x) & ~np.isinf(y))
    imaginary = np.where(unknown, number(math.nan), imaginary)
    return np.copysign(real, a[0]), np.copysign(imaginary, a[1])


def _exp2(a: Pair) -> Pair:
    factor = a[0].dtype.type(math.log(2))
    return _exp((a[0] * factor, a[1] * factor))


def _expm1(a: Pair) -> Pair:
    half = np.sin(a[1] / 2)
    return np.expm1(a[0]) * np.cos(a[1]) - 2 * half * half, np.exp(a[0]) * np.sin(a[1])


def _log1p(a: Pair) -> Pair:
    real = a[0] + 1
    return np.log(np.hypot(real, a[1])), np.arctan2(a[1], real)


def _sign(a: Pair) -> Pair:
    """Return numbers of the same direction and of size 1, or zero."""
    size = np.hypot(a[0], a[1])
    unknown = np.isnan(size) | (np.isinf(a[0]) & np.isinf(a[1]))
    endless, number = np.isinf(size), a[0].dtype.type
    divisor = np.where(endless | (size == 0), number(1), size)

    def part(value: Any, is_long: Any) -> Any:
        one = np.where(is_long, np.copysign(number(1), value), number(0))
        found = np.where(endless, one, np.where(size == 0, number(0), value / divisor))
        return np.where(unknown, number(math.nan), found)

    return part(a[0], np.isinf(a[0])), part(a[1], ~np.isinf(a[0]))


_MOST = 100
"""Integers less far from zero are exponents by which NumPy multiplies."""


def _raised(a: Pair, exponent: int) -> Pair:
    """Return powers that NumPy multiplies, by as many products as the exponent has digits."""
    if exponent in (1, 2, 3):
        found = a
        for _ in range(exponent - 1):
            found = _multiply(a, found)
    else:
        found, square, digits = (a[0].dtype.type(1), a[0].dtype.type(0)), a, abs(exponent)
        while digits:
            found = _multiply(found, square) if digits & 1 else found
            digits >>= 1
            square = _multiply(square, square) if digits else square
    if exponent < 0:
        number = a[0].dtype.type
        zero = (a[0] == 0) & (a[1] == 0)
        divisor = np.where(zero, number(1), found[0]), np.where(zero, number(0), found[1])
        found = _divide((number(1), number(0)), divisor)
    return found


def power_by(exponent: Any, dtype: np.dtype) -> Callable[[Pair], Pair]:
    """Return what raises numbers of a complex dtype to the power of one.

    NumPy multiplies where that is a small integer. Others are powers of e by multiples of
    logarithms, as the C library has them.
    """
    number = complex(dtype.type(exponent))
    if number == 0:
        return lambda a: (np.ones_like(a[0]), a[0].dtype.type(0))
    whole = not number.imag and number.real.is_integer() and abs(number.real) < _MOST

    def raised(a: Pair) -> Pair:
        found = _raised(a, int(number.real)) if whole else _power(a, number)
        return _of_zero(a, found, number.real <= 0)

    return raised


def _of_zero(a: Pair, found: Pair, negative: Any) -> Pair:
    """Return powers, of which those of zero are zero, or not known if the exponent is negative."""
    number = a[0].dtype.type
    zero = (a[0] == 0) & (a[1] == 0)
    unknown = _invalid(zero & negative)
    of_zero = np.where(unknown, number(math.nan), number(0))
    return np.where(zero, of_zero, found[0]), np.where(zero, of_zero, found[1])


def _power(a: Pair, exponent: complex) -> Pair:
    number = a[0].dtype.type
    zero = (a[0] == 0) & (a[1] == 0)
    base = np.where(zero, number(1), a[0]), np.where(zero, number(0), a[1])
    size, angle = _log(base)
    by = number(exponent.real), number(exponent.imag)
    real, imaginary = _multiply((size, angle), by)
    # C's product is infinite where a factor is, if its parts would be unknown.
    lost = np.isinf(size) & np.isnan(real) & np.isnan(imaginary)
    endless = (number(math.inf * each) for each in (exponent.real, exponent.imag))
    first, second = (np.where(lost, *each) for each in zip(endless, (real, imaginary), strict=True))
    return _exp((first, second))


def _compared(first: Any, second: Any) -> Callable[[Pair, Pair], Any]:
    """Return NumPy's own comparison, which reports NaN where it is compared."""

    def compare(a: Pair, b: Pair) -> Any:
        imaginary = np.isnan(a[1]) | np.isnan(b[1])
        unknown = np.isnan(a[0]) | np.isnan(b[0]) | ((a[0] == b[0]) & imaginary)
        return _ordered(first, second)(a, b) & ~_invalid(unknown)

    return compare


def _ordered(first: Any, second: Any) -> Callable[[Pair, Pair], Any]:
    """Return a comparison of complex numbers: by their real parts, and then by the imaginary ones.

    NumPy's own comparisons report NaN as an invalid value, which this does not.

    Parameters
    ----------
    first, second
        The comparisons of these parts. Numbers with an imaginary part that is NaN are in no order
        by the first.
    """

    def compare(a: Pair, b: Pair) -> Any:
        numbers = ~(np.isnan(a[1]) | np.isnan(b[1]))
        return (first(a[0], b[0]) & numbers) | ((a[0] == b[0]) & second(a[1], b[1]))

    return compare


def _chosen(order: Callable[[Pair, Pair], Any], skip: bool) -> Callable[[Pair, Pair], Pair]:
    """Return what takes one of two numbers, the first of equal ones.

    Parameters
    ----------
    order
        Whether it is the first one, for two numbers.
    skip
        Whether it is the other number where one is NaN; else the one that is NaN.
    """

    def choose(a: Pair, b: Pair) -> Pair:
        unknown = b if skip else a
        first = np.isnan(unknown[0]) | np.isnan(unknown[1]) | order(a, b)
        return np.where(first, a[0], b[0]), np.where(first, a[1], b[1])

    return choose


def _joined(join: Any, function: Any) -> Callable[..., Any]:
    """Return what joins the truths that a function returns of both parts."""
    return lambda *pairs: join(*map(function, *pairs))


def _is_true(a: Pair) -> Any:
    return (a[0] != 0) | (a[1] != 0)


def _of_truths(function: Any) -> Callable[..., Any]:
    return lambda *pairs: function(*map(_is_true, pairs))


def _clip(a: Pair, low: Pair, high: Pair) -> Pair:
    return _SMALLER(_LARGER(a, low), high)


def _of_bounds(order: Any) -> Callable[[Pair, Pair], Any]:
    """Return a comparison as NumPy's `clip` has it: NaN is in no order, and not looked for."""
    return lambda a, b: order(a[0], b[0]) | ((a[0] == b[0]) & order(a[1], b[1]))


_LARGER = _chosen(_of_bounds(np.greater), skip=False)
_SMALLER = _chosen(_of_bounds(np.less), skip=False)
_AT_LEAST = _ordered(np.greater, np.greater_equal)
_AT_MOST = _ordered(np.less, np.less_equal)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _by_parts(add),
    "subtract": _by_parts(sub),
    "multiply": _multiply,
    "divide": _divide,
    "reciprocal": _reciprocal,
    "negative": _by_parts(neg),
    "positive": lambda a: a,
    "conjugate": lambda a: (a[0], -a[1]),
    "square": lambda a: _multiply(a, a),
    "absolute": lambda a: np.hypot(*a),
    "exp": _exp,
    "sqrt": _sqrt,
    "log": _log,
    "log2": _scaled(_log, math.log2(math.e)),
    "log10": _scaled(_log, math.log10(math.e)),
    "sin": _across(_sinh),
    "cos": lambda a: _cosh((-a[1], a[0])),
    "sinh": _sinh,
    "cosh": _cosh,
    "tan": _across(_tanh),
    "tanh": _tanh,
    "arcsin": _arcsin,
    "arccos": _arccos,
    "arctan": _across(_arctanh),
    "arcsinh": _across(_arcsin),
    "arccosh": _arccosh,
    "arctanh": _arctanh,
    "exp2": _exp2,
    "expm1": _expm1,
    "log1p": _log1p,
    "sign": _sign,
    "clip": _clip,
    "rint": _by_parts(np.rint),
    "less": _compared(np.less, np.less),
    "less_equal": _compared(np.less, np.less_equal),
    "greater": _compared(np.greater, np.greater),
    "greater_equal": _compared(np.greater, np.greater_equal),
    "equal": _joined(and_, eq),
    "not_equal": _joined(or_, ne),
    "maximum": _chosen(_AT_LEAST, skip=False),
    "minimum": _chosen(_AT_MOST, skip=False),
    "fmax": _chosen(_AT_LEAST, skip=True),
    "fmin": _chosen(_AT_MOST, skip=True),
    "isnan": _joined(or_, np.isnan),
    "isinf": _joined(or_, np.isinf),
    "isfinite": _joined(and_, np.isfinite),
    "logical_and": _of_truths(np.logical_and),
    "logical_or": _of_truths(np.logical_or),
    "logical_xor": _of_truths(np.logical_xor),
    "logical_not": _of_truths(np.logical_not),
}
"""By name of a ufunc: takes the pairs of its operands, and returns a pair, or an array of truths or
of real numbers."""
