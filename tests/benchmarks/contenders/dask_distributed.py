"""dask.array as it comes, on a distributed cluster of one worker process."""

from __future__ import annotations

from tests.benchmarks.contenders import clusters
from tests.benchmarks.contenders.base import Case, Prepared


def prepare(case: Case) -> Prepared:
    return clusters.prepare(case, "dask")
