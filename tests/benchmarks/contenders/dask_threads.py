"""dask.array as it comes, on its threaded scheduler: what all ratios refer to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import persist

from tests.benchmarks.contenders.base import CHUNK, FEWEST, THREADS, Prepared
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    pool = ThreadPoolExecutor(THREADS)
    chunk = min(CHUNK, -(-len(inputs[0]) // FEWEST))
    arrays = persist(*(da.from_array(x, chunks=chunk) for x in inputs), scheduler="sync")

    def run() -> Any:
        """Build the graph anew and leave the result where a dask user has it: in chunks."""
        result = work.function(da, *arrays)
        with dask.config.set(scheduler="threads", pool=pool):
            return result.compute() if work.reduces else result.persist()

    def to_numpy(result: Any) -> np.ndarray:
        return np.asarray(result if work.reduces else result.compute(scheduler="sync"))

    return Prepared(run, to_numpy)
