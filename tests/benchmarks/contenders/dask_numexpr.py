"""numexpr's strings on each block of dask arrays, in the thread of the task."""

from __future__ import annotations

from typing import Any

import numexpr  # type: ignore[import-untyped]

from tests.benchmarks.contenders import dask_threads
from tests.benchmarks.contenders.base import Case, Prepared
from tests.benchmarks.contenders.numexpr_strings import evaluator


def prepare(case: Case) -> Prepared:
    work, evaluate = case.work, evaluator(case.dtype)

    def on_blocks(xp: Any, *arrays: Any) -> Any:
        def block(*chunks: Any) -> Any:
            return work.programs["numexpr"](evaluate, *chunks)

        return xp.map_blocks(block, *arrays, dtype=case.dtype)

    def own(xp: Any, *arrays: Any) -> Any:
        return work.programs["dask-numexpr"](evaluate, xp, *arrays)

    program = own if "dask-numexpr" in work.programs else on_blocks
    plain = dask_threads.prepare(case, program)

    def run() -> Any:
        numexpr.set_num_threads(1)
        return plain.run()

    return Prepared(run, plain.to_numpy)
