"""log, log2, log10 and log1p.

``x = 2**k * m`` with m in [sqrt(1/2), sqrt(2)); ``log(m)`` by the polynomial in
``s = f / (2 + f)``, ``f = m - 1``, of FreeBSD's msun (``e_log.c`` and ``e_logf.c``; Sun
Microsystems, 1993).
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

from numba import float32, float64, int32

from gpusched.vectormath.avx512 import (
    HAS_AVX512,
    exponent,
    mantissa,
    reciprocal_f32,
    reciprocal_f64,
)
from gpusched.vectormath.bits import (
    device,
    fma,
    from_bits_f32,
    from_bits_f64,
    polynomial,
    to_bits_f32,
    to_bits_f64,
)


@device
def _taken_apart_f64(x: Any) -> Any:
    # For 0, infinity and what is negative they are such that the result is right.
    m, k = mantissa(x), exponent(x)
    large = m > 1.4142135623730951
    return k + 1.0 if large else k, (0.5 * m if large else m) - 1.0


@device
def _shifted_f64(x: Any) -> Any:
    tiny = x < 2.2250738585072014e-308
    bits = to_bits_f64(x * 18014398509481984.0 if tiny else x)
    k = (bits - 4604544271217802189) >> 52
    m = from_bits_f64(bits - (k << 52))
    return float64(k - 54 if tiny else k), m - 1.0


# Return k and f = m - 1.
_parts_f64 = _taken_apart_f64 if HAS_AVX512 else _shifted_f64


@device
def _polynomial_f64(f: Any) -> Any:
    """Return s and s * (f**2/2 + R), with log(1 + f) = f - (f**2/2 - s * (f**2/2 + R))."""
    s = f * reciprocal_f64(2.0 + f)
    z = s * s
    r = fma(1.479819860511658591e-01, z, 1.531383769920937332e-01)
    r = fma(r, z, 1.818357216161805012e-01)
    r = fma(r, z, 2.222219843214978396e-01)
    r = fma(r, z, 2.857142874366239149e-01)
    r = fma(r, z, 3.999999999940941908e-01)
    r = fma(r, z, 6.666666666666735130e-01)
    half = 0.5 * f * f
    return half, s * fma(r, z, half)


_short = polynomial(
    0.19363884986633204,
    0.22191337428065783,
    0.28571755535032944,
    0.3999999879244169,
    0.6666666666737868,
)


@device
def log_for_f32(x: Any) -> Any:
    """Return log(x) of a float64 that is normal and positive, to 1e-13."""
    bits = to_bits_f64(x)
    k = (bits - 4604544271217802189) >> 52
    f = from_bits_f64(bits - (k << 52)) - 1.0
    s = f * reciprocal_f64(2.0 + f)
    z = s * s
    return fma(float64(k), 0.6931471805599453, fma(s * z, _short(z), s + s))


@device
def _edges_f64(x: Any, result: Any) -> Any:
    result = result if x < inf else x
    return result if x > 0.0 else (-inf if x == 0.0 else nan)


@device
def _unchanged(x: Any, result: Any) -> Any:
    return result


_finished_f64 = _unchanged if HAS_AVX512 else _edges_f64


@device
def log_f64(x: Any) -> Any:
    k, f = _parts_f64(x)
    half, p = _polynomial_f64(f)
    result = k * 6.93147180369123816490e-01 - ((half - (p + k * 1.90821492927058770002e-10)) - f)
    return _finished_f64(x, result)


@device
def log2_f64(x: Any) -> Any:
    k, f = _parts_f64(x)
    half, p = _polynomial_f64(f)
    # log2(e) = 1 + 0.4427, so that f itself is added exactly.
    tail = p - half
    low = fma(f, 0.44269504088896340736, tail * 1.4426950408889634)
    result = k + (f + low)
    return _finished_f64(x, result)


@device
def log10_f64(x: Any) -> Any:
    k, f = _parts_f64(x)
    half, p = _polynomial_f64(f)
    # The product with 1 / log(10) and that constant itself are sums of two numbers.
    most = f * 0.4342944819032518
    low = fma(f, 0.4342944819032518, -most) + f * 1.098319650216765e-17
    low = fma(p - half, 0.4342944819032518, fma(k, 1.2647602381650425e-11, low))
    result = fma(k, 0.3010299956513336, most + low)
    return _finished_f64(x, result)


@device
def log_of_sum(w: Any, low: Any, doubled: Any) -> Any:
    """Return log(1 + w + low) for w >= 0 or not far below, or log(2 w) if `doubled`."""
    u = w if doubled else 1.0 + w
    k, f = _parts_f64(u)
    near = k == 0.0 and not doubled
    lost = (1.0 - (u - w)) if u >= 2.0 else (w - (u - 1.0))
    rest = 0.0 if doubled else ((low if near else lost + low) / u)
    half, p = _polynomial_f64(w if near else f)
    k = k + 1.0 if doubled else k
    tail = half - (p + fma(k, 1.90821492927058770002e-10, rest))
    return k * 6.93147180369123816490e-01 - (tail - (w if near else f))


@device
def log1p_f64(x: Any) -> Any:
    result = log_of_sum(x, 0.0, False)
    result = result if x < inf else x
    result = result if x > -1.0 else (-inf if x == -1.0 else nan)
    return result if x != 0.0 else x


@device
def _taken_apart_f32(x: Any) -> Any:
    m, k = mantissa(x), exponent(x)
    large = m > float32(1.4142135623730951)
    k = k + float32(1.0) if large else k
    return k, (float32(0.5) * m if large else m) - float32(1.0)


@device
def _shifted_f32(x: Any) -> Any:
    tiny = x < float32(1.17549435e-38)
    bits = to_bits_f32(x * float32(33554432.0) if tiny else x)
    k = int32(int32(bits - int32(0x3F3504F3)) >> int32(23))
    f = from_bits_f32(int32(bits - int32(k << int32(23)))) - float32(1.0)
    return float32(int32(k - int32(25)) if tiny else k), f


_parts_f32 = _taken_apart_f32 if HAS_AVX512 else _shifted_f32


@device
def _polynomial_f32(f: Any) -> Any:
    """Return what that of float64 returns."""
    s = f * reciprocal_f32(float32(2.0) + f)
    z = s * s
    r = fma(float32(0.24279078841), z, float32(0.28498786688))
    r = fma(r, z, float32(0.40000972152))
    r = fma(r, z, float32(0.66666662693))
    half = float32(0.5) * f * f
    return half, s * fma(r, z, half)


@device
def _edges_f32(x: Any, result: Any) -> Any:
    result = result if x < float32(inf) else x
    return result if x > float32(0.0) else (float32(-inf) if x == float32(0.0) else float32(nan))


_finished_f32 = _unchanged if HAS_AVX512 else _edges_f32


@device
def log_f32(x: Any) -> Any:
    k, f = _parts_f32(x)
    half, p = _polynomial_f32(f)
    result = k * float32(6.9313812256e-01) - ((half - (p + k * float32(9.0580006145e-06))) - f)
    return _finished_f32(x, result)


@device
def log2_f32(x: Any) -> Any:
    k, f = _parts_f32(x)
    half, p = _polynomial_f32(f)
    low = fma(f, float32(0.44269504088896340736), (p - half) * float32(1.4426950408889634))
    return _finished_f32(x, k + (f + low))


@device
def log10_f32(x: Any) -> Any:
    k, f = _parts_f32(x)
    half, p = _polynomial_f32(f)
    most = f * float32(0.4342944920063019)
    low = fma(f, float32(0.4342944920063019), -most) + f * float32(-1.0103050052231683e-08)
    low = fma(p - half, float32(0.4342944920063019), fma(k, float32(4.605038981195214e-06), low))
    return _finished_f32(x, fma(k, float32(0.301025390625), most + low))


@device
def log1p_f32(x: Any) -> Any:
    one = float32(1.0)
    u = one + x
    k, f = _parts_f32(u)
    near = k == float32(0.0)
    lost = one - (u - x) if u >= float32(2.0) else x - (u - one)
    rest = float32(0.0) if near else lost / u
    f = x if near else f
    half, p = _polynomial_f32(f)
    tail = half - (p + fma(k, float32(9.0580006145e-06), rest))
    result = _edges_f32(u, k * float32(6.9313812256e-01) - (tail - f))
    return result if x != float32(0.0) else x
