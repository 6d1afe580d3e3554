"""NumPy on whole arrays, in one thread (its matrix products take as many as they may)."""

from __future__ import annotations

from tests.benchmarks import names
from tests.benchmarks.contenders.base import Case, Prepared


def prepare(case: Case) -> Prepared:
    program, xp = case.work.program_of("numpy"), names.numpy()
    return Prepared(lambda: program(xp, *case.inputs))
