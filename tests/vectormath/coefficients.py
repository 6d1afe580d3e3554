"""Print the polynomials: `python -m tests.vectormath.coefficients [NAME ...]`.

Each interpolates at the Chebyshev nodes of its interval, in 60 digits; beside it stands the largest
error that is left, relative to the whole function rather than to the polynomial.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mpf

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """One polynomial."""

    function: Function
    low: Any
    high: Any
    degree: int
    share: Function = lambda z: 1
    """What part of the whole function's value the polynomial is, per argument."""


def _odd(function: Function, z: Any, leading: Any = 1) -> Any:
    """Return (f(x) - leading x) / x**3 at x**2 = z."""
    x = mpmath.sqrt(z)
    return (function(x) - leading * x) / (x * z)


def _sine(z: Any) -> Any:
    return _odd(mpmath.sin, z)


def _cosine(z: Any) -> Any:
    return (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / (z * z)


def _exponential(r: Any) -> Any:
    return (mpmath.exp(r) - 1 - r) / (r * r)


def _logarithm(z: Any) -> Any:
    """Return (log(m) - 2 s - 2/3 s**3) / s**5 at s**2 = z, s = (m - 1) / (m + 1)."""
    s = mpmath.sqrt(z)
    return (2 * mpmath.atanh(s) - 2 * s - 2 * s * z / 3) / (s * z * z)


def _logarithm_short(z: Any) -> Any:
    s = mpmath.sqrt(z)
    return (2 * mpmath.atanh(s) - 2 * s) / (s * z)


def _scaled_complement(t: Any) -> Any:
    """Return (1 + 2 x) exp(x**2) erfc(x) at t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


_QUARTER = (mpmath.pi / 4) ** 2 * mpf("1.0001")
_HALF_LOG = mpmath.log(2) / 2 * mpf("1.001")
_S = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)


def _sixth(z: Any) -> Any:
    return z / 6


def fits() -> dict[str, Fit]:
    zero = mpf("1e-16")
    return {
        "sin_f64": Fit(_sine, zero, _QUARTER, 6, _sixth),
        "cos_f64": Fit(_cosine, zero, _QUARTER, 5, lambda z: z * z),
        "sin_f32": Fit(_sine, zero, _QUARTER, 2, _sixth),
        "cos_f32": Fit(_cosine, zero, _QUARTER, 2, lambda z: z * z),
        "sin_f32_in_f64": Fit(_sine, zero, _QUARTER, 3, _sixth),
        "cos_f32_in_f64": Fit(_cosine, zero, _QUARTER, 3, lambda z: z * z),
        "exp_in_f64_of_f32": Fit(_exponential, -_HALF_LOG, _HALF_LOG, 5, lambda r: r * r),
        "power_f64": Fit(_logarithm, zero, _S**2 * mpf("1.001"), 6, lambda z: z * z / 5),
        "power_f32": Fit(_logarithm_short, zero, _S**2 * mpf("1.001"), 4, lambda z: z / 3),
        "sinh_f64": Fit(lambda z: _odd(mpmath.sinh, z), zero, mpf(1), 6, _sixth),
        "sinh_f32": Fit(lambda z: _odd(mpmath.sinh, z), zero, mpf(1), 3, _sixth),
        "arcsin_f64": Fit(lambda z: _odd(mpmath.asin, z), zero, mpf("0.25"), 13, _sixth),
        "arcsin_f32": Fit(lambda z: _odd(mpmath.asin, z), zero, mpf("0.25"), 5, _sixth),
        "erfc_f64": Fit(_scaled_complement, mpf("-0.78"), mpf("0.75"), 22),
        "erfc_f32": Fit(_scaled_complement, mpf(-1), mpf("0.47"), 11),
        "exp2_f32": Fit(lambda f: (2**f - 1) / f, mpf("-0.501"), mpf("0.501"), 5),
        "erf_f32": Fit(lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z), zero, mpf("0.86"), 6),
        "erf_f32_above": Fit(lambda a: mpmath.log(mpmath.erfc(a)), mpf("0.9"), mpf("3.95"), 8),
        "cbrt": Fit(lambda m: 1 / mpmath.cbrt(m), mpf("0.5"), mpf(1), 5),
    }


def interpolate(fit: Fit) -> list[Any]:
    """Return the coefficients, highest power first."""
    nodes = mpmath.chop(
        [
            (fit.low + fit.high) / 2
            + (fit.high - fit.low) / 2 * mpmath.cos((2 * k + 1) * mpmath.pi / (2 * fit.degree + 2))
            for k in range(fit.degree + 1)
        ]
    )
    matrix = mpmath.matrix([[x**p for p in range(fit.degree, -1, -1)] for x in nodes])
    values = mpmath.matrix([fit.function(x) for x in nodes])
    return list(mpmath.lu_solve(matrix, values))


def error(fit: Fit, coefficients: list[Any]) -> float:
    """Return the largest error, as a share of the whole function."""
    points = [fit.low + (fit.high - fit.low) * (k + mpf("0.3")) / 401 for k in range(401)]
    return float(
        max(
            abs(mpmath.polyval(coefficients, x) / fit.function(x) - 1) * fit.share(x)
            for x in points
        )
    )


def main(names: list[str]) -> int:
    mpmath.mp.dps = 60
    for name, fit in fits().items():
        if names and name not in names:
            continue
        found = interpolate(fit)
        print(f"{name}: error {error(fit, found):.1e}")
        for coefficient in found:
            print(f"    {float(coefficient)!r}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
