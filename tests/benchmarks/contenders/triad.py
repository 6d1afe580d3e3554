"""The memory limit of three inputs: read them, write one warm buffer."""

from __future__ import annotations

import numba
import numpy as np

from tests.benchmarks.contenders import streams
from tests.benchmarks.contenders.base import THREADS, Case, Prepared


def prepare(case: Case) -> Prepared:
    """Take the work's inputs, or three arrays with as many elements as its largest has."""
    alike = len(case.inputs) == 3 and len({x.shape for x in case.inputs}) == 1
    largest = max(case.inputs, key=lambda x: x.size)
    arrays = [x.ravel() for x in (case.inputs if alike else [largest] * 3)]
    if not alike:
        arrays = [x.copy() for x in arrays]
    numba.set_num_threads(THREADS)
    out = np.zeros_like(arrays[0])
    return Prepared(lambda: streams.triad(*arrays, out), to_numpy=None)
