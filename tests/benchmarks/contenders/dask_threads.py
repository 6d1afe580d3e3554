"""dask.array as it comes, on its threaded scheduler: what all ratios refer to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np

from tests.benchmarks.contenders.base import CHUNKS, THREADS, Prepared
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    pool = ThreadPoolExecutor(THREADS)
    chunk = -(-len(inputs[0]) // CHUNKS)
    arrays = dask.persist(*(da.from_array(x, chunks=chunk) for x in inputs), scheduler="sync")

    def run():
        """Build the graph anew and leave the result where a dask user has it: in chunks."""
        result = work.function(da, *arrays)
        with dask.config.set(scheduler="threads", pool=pool):
            return result.compute() if work.reduces else result.persist()

    def to_numpy(result):
        return np.asarray(result if work.reduces else result.compute(scheduler="sync"))

    return Prepared(run, to_numpy)
