"""The loop by hand into a buffer that is written again and again: no page is ever new."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.contenders import numba_by_hand
from tests.benchmarks.contenders.base import Prepared, Unavailable
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    if work.reduces:
        raise Unavailable("a sum writes nothing, so this is the same as numba")
    out = np.zeros_like(inputs[0])

    def run() -> np.ndarray:
        numba_by_hand.LOOPS[work.name](*inputs, out)
        return out

    return Prepared(run)
