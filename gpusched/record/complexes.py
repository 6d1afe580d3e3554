"""NumPy's functions of complex numbers, in terms of their parts: in NumPy's own language.

Each is NumPy's algorithm (``numpy/_core/src/umath/loops.c.src``), or that of the C library which
NumPy calls, on arrays of real numbers; these are recorded as all others are. Nothing is computed
below a choice that raises an error, or is compared with care for it: whether a floating-point error
was raised is seen as it is for real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Pair = tuple[Any, Any]
"""Arrays of the real and the imaginary parts."""


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _subtract(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


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


def _negative(a: Pair) -> Pair:
    return -a[0], -a[1]


def _positive(a: Pair) -> Pair:
    return a


def _conjugate(a: Pair) -> Pair:
    return a[0], -a[1]


def _square(a: Pair) -> Pair:
    return a[0] * a[0] - a[1] * a[1], a[0] * a[1] + a[1] * a[0]


def _absolute(a: Pair) -> Any:
    return np.hypot(a[0], a[1])


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


def _sin(a: Pair) -> Pair:
    imaginary, real = _sinh((a[1], a[0]))
    return real, imaginary


def _cos(a: Pair) -> Pair:
    return _cosh((-a[1], a[0]))


def _rint(a: Pair) -> Pair:
    return np.rint(a[0]), np.rint(a[1])


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


def _equal(a: Pair, b: Pair) -> Any:
    return (a[0] == b[0]) & (a[1] == b[1])


def _not_equal(a: Pair, b: Pair) -> Any:
    return (a[0] != b[0]) | (a[1] != b[1])


def _either(function: Any) -> Callable[[Pair], Any]:
    return lambda a: function(a[0]) | function(a[1])


def _isfinite(a: Pair) -> Any:
    return np.isfinite(a[0]) & np.isfinite(a[1])


def _is_true(a: Pair) -> Any:
    return (a[0] != 0) | (a[1] != 0)


def _of_truths(function: Any) -> Callable[..., Any]:
    return lambda *pairs: function(*map(_is_true, pairs))


_AT_LEAST = _ordered(np.greater, np.greater_equal)
_AT_MOST = _ordered(np.less, np.less_equal)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "reciprocal": _reciprocal,
    "negative": _negative,
    "positive": _positive,
    "conjugate": _conjugate,
    "square": _square,
    "absolute": _absolute,
    "exp": _exp,
    "sqrt": _sqrt,
    "log": _log,
    "log2": _scaled(_log, math.log2(math.e)),
    "log10": _scaled(_log, math.log10(math.e)),
    "sin": _sin,
    "cos": _cos,
    "sinh": _sinh,
    "cosh": _cosh,
    "rint": _rint,
    "less": _compared(np.less, np.less),
    "less_equal": _compared(np.less, np.less_equal),
    "greater": _compared(np.greater, np.greater),
    "greater_equal": _compared(np.greater, np.greater_equal),
    "equal": _equal,
    "not_equal": _not_equal,
    "maximum": _chosen(_AT_LEAST, skip=False),
    "minimum": _chosen(_AT_MOST, skip=False),
    "fmax": _chosen(_AT_LEAST, skip=True),
    "fmin": _chosen(_AT_MOST, skip=True),
    "isnan": _either(np.isnan),
    "isinf": _either(np.isinf),
    "isfinite": _isfinite,
    "logical_and": _of_truths(np.logical_and),
    "logical_or": _of_truths(np.logical_or),
    "logical_xor": _of_truths(np.logical_xor),
    "logical_not": _of_truths(np.logical_not),
}
"""By name of a ufunc: takes the pairs of its operands, and returns a pair, or an array of truths or
of real numbers."""
