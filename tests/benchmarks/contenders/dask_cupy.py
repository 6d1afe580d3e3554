"""dask.array with CuPy's chunks: a kernel an operation and chunk, from one thread."""

from __future__ import annotations

from typing import Any

import cupy
import dask

from tests.benchmarks import names
from tests.benchmarks.contenders import dask_threads
from tests.benchmarks.contenders.base import Case, Prepared
from tests.benchmarks.contenders.cupy_plain import synchronised, to_numpy
from tests.benchmarks.works.base import several


def prepare(case: Case) -> Prepared:
    program, xp = case.work.program_of("dask"), names.dask()
    arrays = [
        x.map_blocks(cupy.asarray).persist(scheduler="sync") if dask.is_dask_collection(x) else x
        for x in dask_threads.chunked(case)
    ]

    def run() -> Any:
        results = several(program(xp, *arrays))
        return synchronised(dask.persist(*results, scheduler="sync"))

    return Prepared(run, lambda results: to_numpy(dask.compute(*results, scheduler="sync")))
