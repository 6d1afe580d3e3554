"""The memory limit: read three arrays, write one warm buffer, and compute next to nothing."""

from __future__ import annotations

import numba
import numpy as np

from tests.benchmarks.contenders.base import THREADS, Prepared
from tests.benchmarks.works import Work


@numba.njit(parallel=True)
def _triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in numba.prange(out.size):
        out[i] = a[i] + b[i] * c[i]


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    numba.set_num_threads(THREADS)
    out = np.zeros_like(inputs[0])
    return Prepared(lambda: _triad(*inputs, out), to_numpy=None)
