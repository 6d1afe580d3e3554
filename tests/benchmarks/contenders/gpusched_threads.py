"""The same dask program on the same scheduler, with fusion switched on."""

from __future__ import annotations

from typing import Any

import dask

from tests.benchmarks.contenders import dask_threads
from tests.benchmarks.contenders.base import Case, Prepared, Unavailable

try:
    from gpusched import enable, statistics
except ImportError as error:
    raise ImportError(f"gpusched cannot be switched on: {error}") from error


def prepare(case: Case) -> Prepared:
    plain = dask_threads.prepare(case, case.work.programs.get("gpusched"))
    before = statistics().launches

    def run() -> Any:
        with enable():
            return plain.run()

    def to_numpy(results: Any) -> Any:
        if case.work.fused and statistics().launches == before:
            raise Unavailable("no kernel was launched, so this would time plain dask")
        return dask_threads.to_numpy(results)

    def settle() -> None:
        with dask.config.set({"gpusched.fusion.tier": "fused"}):
            run()

    return Prepared(run, to_numpy, settle)
