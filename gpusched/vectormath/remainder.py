"""fmod.

``x - trunc(x / y) y`` is exact as one fused multiply-add as long as the quotient is below 2**p, p
the bits of a significand: the quotient rounds up to the next whole number at most, which shows in
the remainder's sign.  Larger quotients, which are rare, are the C library's (long division, a bit
at a time).
"""

from __future__ import annotations

from typing import Any

from gpusched.vectormath.bits import device, floor, fma
from gpusched.vectormath.rarely import rarely
from gpusched.vectormath.signs import with_sign_of, with_sign_of_f32


def _function(limit: float, signed: Any) -> Any:
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


fmod_f32, fmod_f64 = _function(2.0**23, with_sign_of_f32), _function(2.0**52, with_sign_of)
