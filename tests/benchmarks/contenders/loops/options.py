"""Black-Scholes with Greeks in one loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from tests.benchmarks.works import black_scholes as model


@numba.njit
def _tanh_form(x: Any, real: Any) -> Any:
    polynomial = x * (real(model.LINEAR) + real(model.CUBIC) * x * x)
    return real(0.5) * (real(1) + math.tanh(polynomial))


@numba.njit
def _erf_form(x: Any, real: Any) -> Any:
    return real(0.5) * (real(1) + math.erf(x * real(model.ROOT_HALF)))


def _loop(form: Callable[..., Any]) -> Callable[..., Any]:
    @numba.njit(parallel=True, error_model="numpy")
    def greeks(spot: np.ndarray, strike: np.ndarray, years: np.ndarray) -> Any:
        real = spot.dtype.type
        rate, volatility, drift = real(model.RATE), real(model.VOLATILITY), real(model.DRIFT)
        price, delta, gamma = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
        vega, theta, rho = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
        for i in numba.prange(spot.size):
            s, k, t = spot[i], strike[i], years[i]
            root = math.sqrt(t)
            spread = volatility * root
            d1 = (math.log(s / k) + drift * t) / spread
            n1 = form(d1, real)
            exercised = k * math.exp(-rate * t) * form(d1 - spread, real)
            density = math.exp(real(-0.5) * d1 * d1) / real(model.ROOT_TWO_PI)
            v = s * density * root
            price[i] = s * n1 - exercised
            delta[i] = n1
            gamma[i] = density / (s * spread)
            vega[i] = v
            theta[i] = -v * volatility / (real(2) * t) - rate * exercised
            rho[i] = t * exercised
        return price, delta, gamma, vega, theta, rho

    return greeks


with_tanh, with_erf = _loop(_tanh_form), _loop(_erf_form)
