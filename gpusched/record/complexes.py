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
    "equal": _equal,
    "not_equal": _not_equal,
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
