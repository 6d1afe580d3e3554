"""dask.array as it comes, on its threaded scheduler: what all ratios refer to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import persist

from tests.benchmarks import names
from tests.benchmarks.contenders.base import THREADS, Case, Prepared
from tests.benchmarks.works.base import several


def chunked(case: Case) -> list[Any]:
    """Return the inputs as dask arrays whose chunks are in memory; integers stay as they are."""
    return [
        persist(da.from_array(x, chunks=chunks).map_blocks(np.ascontiguousarray), scheduler="sync")[
            0
        ]
        if x.dtype.kind == "f"
        else x
        for x, chunks in zip(case.inputs, case.chunks(), strict=True)
    ]


def prepare(case: Case, program: Callable[..., Any] | None = None) -> Prepared:
    """Run this program; dask's if not given."""
    program = program or case.work.program_of("dask")
    pool, arrays, xp = ThreadPoolExecutor(THREADS), chunked(case), names.dask()

    def run() -> Any:
        """Build the graph anew and leave the results where a dask user has them: in chunks."""
        results = several(program(xp, *arrays))
        with dask.config.set(scheduler="threads", pool=pool):
            return persist(*results)

    return Prepared(run, to_numpy)


def to_numpy(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in dask.compute(*results, scheduler="sync")]
