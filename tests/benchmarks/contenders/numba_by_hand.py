"""Parallel loops such as a numba user writes by hand; results are newly allocated."""

from __future__ import annotations

import numba

from tests.benchmarks.contenders import loops
from tests.benchmarks.contenders.base import THREADS, Case, Prepared


def prepare(case: Case) -> Prepared:
    numba.set_num_threads(THREADS)
    function = loops.load(case.work.name)
    return Prepared(lambda: function(*case.inputs))
