"""The memory limit of three inputs: read them, write one warm buffer."""

from __future__ import annotations

import numba
import numpy as np

from tests.benchmarks.contenders import streams
from tests.benchmarks.contenders.base import THREADS, Case, Prepared, Unavailable


def prepare(case: Case) -> Prepared:
    if len({x.shape for x in case.inputs}) != 1 or len(case.inputs) != 3:
        raise Unavailable("it takes three inputs of one shape")
    numba.set_num_threads(THREADS)
    out = np.zeros_like(case.inputs[0])
    return Prepared(lambda: streams.triad(*case.inputs, out), to_numpy=None)
