"""numexpr on strings; constants are arrays, since a literal would make float32 double.

Its own `sum(...)` adds float32 in sequence and loses the digits we ask for (18,500 eps on 2M
elements), so NumPy adds what it computed.
"""

from __future__ import annotations

import numexpr  # type: ignore[import-untyped]
import numpy as np

from tests.benchmarks import works
from tests.benchmarks.contenders.base import THREADS, Prepared
from tests.benchmarks.works import Work

_D1 = "((log(a / b) + (rate + half * vol * vol) * c) / (vol * sqrt(c)))"
_D2 = f"({_D1} - vol * sqrt(c))"


def _normal_cdf(x: str) -> str:
    return f"(half * (one + tanh(root * ({x} + cubic * {x} * {x} * {x}))))"


_CHAIN = "(((a + b) * c - a) * half)"
_STRINGS = {
    "black-scholes": f"a * {_normal_cdf(_D1)} - b * exp(-rate * c) * {_normal_cdf(_D2)}",
    "clip": f"where({_CHAIN} < zero, zero, where({_CHAIN} > one, one, {_CHAIN}))",
    "square-sum": "((a - b) * c) ** 2",
}
_CONSTANTS = {
    "rate": works.RATE,
    "vol": works.VOLATILITY,
    "root": works.SQRT_2_OVER_PI,
    "cubic": 0.044715,
    "half": 0.5,
    "one": 1.0,
    "zero": 0.0,
}


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    numexpr.set_num_threads(THREADS)
    names = {k: np.array(v, inputs[0].dtype) for k, v in _CONSTANTS.items()}
    names |= dict(zip("abc", inputs, strict=True))

    def run() -> np.ndarray:
        result: np.ndarray = numexpr.evaluate(_STRINGS[work.name], local_dict=names)
        return np.asarray(result.sum()) if work.reduces else result

    return Prepared(run)
