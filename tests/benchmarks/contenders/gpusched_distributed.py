"""The same dask program on gpusched's cluster of one worker process, with fusion switched on."""

from __future__ import annotations

from typing import Any

import dask

import gpusched
from tests.benchmarks.contenders import clusters
from tests.benchmarks.contenders.base import Case, Prepared, Unavailable


def prepare(case: Case) -> Prepared:
    plain, user = clusters.prepare(case, "gpusched"), clusters.client("gpusched")
    before = launches(user)

    def run() -> Any:
        with gpusched.enable():
            return plain.run()

    def to_numpy(results: Any) -> Any:
        if case.work.fused and launches(user) == before:
            raise Unavailable("no kernel was launched, so this would time plain dask")
        assert plain.to_numpy is not None
        return plain.to_numpy(results)

    def settle() -> None:
        with dask.config.set({"gpusched.fusion.tier": "fused"}):
            run()

    return Prepared(run, to_numpy, settle)


def launches(user: Any) -> int:
    """Return how many kernels the cluster's workers have launched."""
    return sum(user.run(_launches).values())


def _launches() -> int:
    return gpusched.statistics().launches
