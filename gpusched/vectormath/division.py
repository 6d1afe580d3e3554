"""floor_divide and remainder of integers, and fmod.

Processors divide integers one at a time. Numbers of up to 32 bits are divided as floats with more
bits: a quotient by b that is not whole is 1/b or more from the next whole number, too far to be
rounded to it.  Of 64 bits, a first quotient leaves a rest of at most the divisor and 2**12, which
is divided in its turn; what is then off by one shows in the rest's sign and size.

fmod: ``x - trunc(x / y) y`` is exact as one fused multiply-add as long as the quotient is below
2**p, p the bits of a significand: the quotient rounds up to the next whole number at most, which
shows in the remainder's sign.  Larger quotients, which are rare, are the C library's (long
division, a bit at a time).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import float32, float64, int32, int64, types, uint32
from numba.extending import overload

from gpusched.vectormath.avx512 import HAS_AVX512
from gpusched.vectormath.bits import device, floor, fma, with_sign_of, with_sign_of_f32
from gpusched.vectormath.rarely import rarely

_LARGEST = 9223372036854774784.0
"""The largest float64 that is an int64."""


@lru_cache(maxsize=8)
def _narrow(real: Any, whole: Any) -> tuple[Any, Any]:
    """Return both functions by way of floats of a dtype, which give integers of another."""

    @device
    def quotient(a: Any, b: Any) -> Any:
        return whole(floor(real(a) / real(b)))

    @device
    def rest(a: Any, b: Any) -> Any:
        x, y = real(a), real(b)
        return whole(fma(-floor(x / y), y, x))

    return quotient, rest


@device
def _both_i64(a: Any, b: Any) -> Any:
    y = float64(b)
    x = float64(a) / y
    q = int64(floor(x if x < _LARGEST else _LARGEST))
    r = a - q * b
    more = int64(floor(float64(r) * (1.0 / y)))
    q, r = q + more, r - more * b
    below = r < 0 if b > 0 else r > 0
    q, r = (q - 1 if below else q), (r + b if below else r)
    above = r >= b if b > 0 else r <= b
    return (q + 1 if above else q), (r - b if above else r)


@device
def _quotient_i64(a: Any, b: Any) -> Any:
    return _both_i64(a, b)[0]


@device
def _rest_i64(a: Any, b: Any) -> Any:
    return _both_i64(a, b)[1]


def _chosen(kind: Any) -> tuple[Any, Any] | None:
    """Return both functions for integers of a kind; None if the processor's division is as good."""
    if kind.bitwidth <= 16:
        return _narrow(float32, int32)
    if kind.bitwidth == 32:
        return _narrow(float64, int32 if kind.signed else uint32)
    # Without these instructions int64 becomes a float one at a time.
    return (_quotient_i64, _rest_i64) if kind.signed and HAS_AVX512 else None


def _function(name: str, which: int, by_processor: Callable[..., Any]) -> Callable[..., Any]:
    def function(a: Any, b: Any) -> Any:
        return by_processor(a, b)

    function.__name__ = name  # for numba's messages

    @overload(function, strict=False, inline="always")
    def choose(a: Any, b: Any) -> Any:
        if not isinstance(a, types.Integer):
            return None
        found = _chosen(a) if a == b else None
        if found is None:
            return by_processor
        vectorised = found[which]
        return lambda a, b: vectorised(a, b)

    return function


floor_divide = _function("floor_divide", 0, lambda a, b: a // b)
"""The quotient, rounded down, of integers; the divisor is neither 0 nor, unless it is unsigned, -1.
"""
remainder = _function("remainder", 1, lambda a, b: a % b)
"""What is left of the first integer, with the sign of the second, which is neither 0 nor -1."""


def _fmod(limit: float, signed: Any) -> Any:
    """Return fmod of the dtype whose quotients have to be below that."""
    by_long_division = rarely("fmod", limit, 2)

    @device
    def fmod(x: Any, y: Any) -> Any:
        a, b = abs(x), abs(y)
        q = floor(a / b)
        r = fma(-q, b, a)
        r = r + b if r < 0.0 else r
        r = a if a < b else r
        return signed(by_long_division(q, x, y) if q >= limit else r, x)

    return fmod


fmod_f32, fmod_f64 = _fmod(2.0**23, with_sign_of_f32), _fmod(2.0**52, with_sign_of)
