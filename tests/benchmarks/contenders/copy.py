"""The memory limit of any work: read every input once, write every result once, to warm buffers."""

from __future__ import annotations

import numba
import numpy as np

from tests.benchmarks.contenders import streams
from tests.benchmarks.contenders.base import THREADS, Case, Prepared


def prepare(case: Case) -> Prepared:
    numba.set_num_threads(THREADS)
    sources = [x.ravel() for x in case.inputs]
    results = [
        np.zeros(x.size, case.dtype if x.dtype.kind == "f" else x.dtype) for x in case.reference
    ]
    pairs = [(a, b) for a, b in zip(sources, results, strict=False) if a.size == b.size]
    read = sources[len(pairs) :]
    written = results[len(pairs) :]

    def run() -> None:
        for source, out in pairs:
            streams.copy(source, out)
        for source in read:
            streams.read(source)
        for out in written:
            streams.fill(out)

    return Prepared(run, to_numpy=None)
