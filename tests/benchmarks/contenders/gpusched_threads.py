"""The same dask program on the same scheduler, with fusion switched on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.benchmarks.contenders import dask_threads
from tests.benchmarks.contenders.base import Prepared, Unavailable
from tests.benchmarks.works import Work

try:
    from gpusched import enable, statistics
except ImportError as error:
    raise ImportError(f"gpusched cannot be switched on: {error}") from error


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    plain = dask_threads.prepare(work, inputs)

    def run() -> Any:
        with enable():
            return plain.run()

    before = statistics().launches
    run()
    if statistics().launches == before:
        raise Unavailable("no kernel was launched, so this would time plain dask")
    return Prepared(run, plain.to_numpy)
