"""CuPy's own fusion, of elementwise programs; a reduction at the end it takes as well."""

from __future__ import annotations

from typing import Any

import cupy

from tests.benchmarks import names
from tests.benchmarks.contenders.base import Case, Prepared, Unavailable
from tests.benchmarks.contenders.cupy_plain import synchronised, to_numpy


def prepare(case: Case) -> Prepared:
    program, xp = case.work.program_of("cupy"), names.cupy()
    arrays = [cupy.asarray(x) for x in case.inputs]
    fused = cupy.fuse(lambda *values: program(xp, *values))

    def run() -> Any:
        return synchronised(fused(*arrays))

    try:
        run()
    except (TypeError, NotImplementedError, ValueError) as reason:
        raise Unavailable(f"cupy.fuse refuses it: {reason}") from reason
    return Prepared(run, to_numpy)
