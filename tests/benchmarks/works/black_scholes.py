"""Prices of European calls and their five Greeks, with two forms of the normal distribution.

F. Black and M. Scholes, "The pricing of options and corporate liabilities", Journal of Political
Economy 81 (1973) 637-654.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, seeded

RATE, VOLATILITY = 0.03, 0.25
DRIFT = RATE + VOLATILITY**2 / 2
ROOT_HALF, ROOT_TWO_PI = 0.7071067811865476, 2.5066282746310002
LINEAR, CUBIC = 0.7978845608028654, 0.7978845608028654 * 0.044715
"""E. Page, "Approximations to the cumulative normal function and its inverse for use on a pocket
calculator", Applied Statistics 26 (1977) 75-76."""


def tanh_form(xp: Any, x: Any) -> Any:
    """Return the normal distribution function, to about 2e-4."""
    return 0.5 * (1 + xp.tanh(x * (LINEAR + CUBIC * x * x)))


def erf_form(xp: Any, x: Any) -> Any:
    """Return the normal distribution function."""
    return 0.5 * (1 + xp.erf(x * ROOT_HALF))


def greeks(form: Callable[[Any, Any], Any], xp: Any, spot: Any, strike: Any, years: Any) -> Any:
    """Return price, delta, gamma, vega, theta and rho."""
    root = xp.sqrt(years)
    spread = VOLATILITY * root
    d1 = (xp.log(spot / strike) + DRIFT * years) / spread
    d2 = d1 - spread
    delta = form(xp, d1)
    exercised = strike * xp.exp(-RATE * years) * form(xp, d2)
    density = xp.exp(-0.5 * d1 * d1) / ROOT_TWO_PI
    vega = spot * density * root
    theta = -vega * VOLATILITY / (2 * years) - RATE * exercised
    price = spot * delta - exercised
    return price, delta, density / (spot * spread), vega, theta, years * exercised


def book(count: int, dtype: str) -> list[np.ndarray]:
    """Return spot prices, strikes and years to expiry."""
    random = seeded()
    ranges = ((20, 180), (20, 180), (0.05, 3))
    return [
        (low + (high - low) * random.random(count, dtype="f4")).astype(dtype)
        for low, high in ranges
    ]


def numexpr_program(evaluate: Callable[..., Any], spot: Any, strike: Any, years: Any) -> Any:
    """Return the same by one string a result; those that results share are computed once."""
    spread = evaluate("vol * sqrt(t)", vol=VOLATILITY, t=years)
    d1 = evaluate("(log(s / k) + drift * t) / x", s=spot, k=strike, drift=DRIFT, t=years, x=spread)
    form = "half * (one + tanh(d * (linear + cubic * d * d)))"
    constants = {"half": 0.5, "one": 1.0, "linear": LINEAR, "cubic": CUBIC}
    delta = evaluate(form, d=d1, **constants)
    exercised = evaluate(
        f"k * exp(-rate * t) * {form.replace('d *', '(d1 - x) *').replace('* d)', '* (d1 - x))')}",
        k=strike, rate=RATE, t=years, d1=d1, x=spread, **constants,
    )  # fmt: skip
    density = evaluate("exp(-half * d * d) / root", half=0.5, d=d1, root=ROOT_TWO_PI)
    vega = evaluate("s * y * x / vol", s=spot, y=density, x=spread, vol=VOLATILITY)
    theta = evaluate(
        "-v * vol / (two * t) - rate * e",
        v=vega, vol=VOLATILITY, two=2.0, t=years, rate=RATE, e=exercised,
    )  # fmt: skip
    price = evaluate("s * delta - e", s=spot, delta=delta, e=exercised)
    gamma = evaluate("y / (s * x)", y=density, s=spot, x=spread)
    return price, delta, gamma, vega, theta, evaluate("t * e", t=years, e=exercised)


def on_blocks(evaluate: Callable[..., Any], xp: Any, *inputs: Any) -> Any:
    """Return the same, block by block on dask."""
    return xp.apply_gufunc(
        partial(numexpr_program, evaluate),
        "(),(),()->(),(),(),(),(),()",
        *inputs,
        output_dtypes=[inputs[0].dtype] * 6,
    )


NO_ERF = "numexpr has no erf"
ELEMENTS = {"float32": 50_000_000, "float64": 25_000_000}

TANH = Work(
    "black-scholes-tanh",
    "Black-Scholes, tanh form",
    "W1 Black-Scholes price and five Greeks, tanh form",
    book,
    partial(greeks, tanh_form),
    elements=ELEMENTS,
    programs={"numexpr": numexpr_program, "dask-numexpr": on_blocks},
    tolerance=64,
)
ERF = Work(
    "black-scholes-erf",
    "Black-Scholes, erf form",
    "W1 Black-Scholes price and five Greeks, erf form",
    book,
    partial(greeks, erf_form),
    elements=ELEMENTS,
    absent={"numexpr": NO_ERF, "dask-numexpr": NO_ERF, "cubed": "the array API has no erf"},
    tolerance=64,
)
