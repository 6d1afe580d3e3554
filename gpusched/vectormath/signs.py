"""Signs, and pi in two parts, which functions that are odd or give angles share."""

from __future__ import annotations

from typing import Any

from numba import int32

from gpusched.vectormath.bits import (
    device,
    from_bits_f32,
    from_bits_f64,
    to_bits_f32,
    to_bits_f64,
)

SIGN = -9223372036854775808
"""The bit of a float64."""
HALF_PI, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
PI, PI_LOW = 3.141592653589793, 1.2246467991473532e-16
HALF_PI_LOW_F32, PI_LOW_F32 = -4.371138828673793e-08, -8.742277657347586e-08


@device
def with_sign_of(size: Any, x: Any) -> Any:
    """Return a float64 of that size with the sign of x."""
    return from_bits_f64((to_bits_f64(size) & ~SIGN) | (to_bits_f64(x) & SIGN))


@device
def with_sign_of_f32(size: Any, x: Any) -> Any:
    """Return a float32 of that size with the sign of x."""
    bits = int32(to_bits_f32(size) & int32(2147483647))
    return from_bits_f32(int32(bits | int32(to_bits_f32(x) & int32(-2147483648))))
