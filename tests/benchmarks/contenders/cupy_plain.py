"""CuPy on whole arrays: a kernel an operation."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from tests.benchmarks import names
from tests.benchmarks.contenders.base import Case, Prepared
from tests.benchmarks.works.base import several


def prepare(case: Case) -> Prepared:
    program, xp = case.work.program_of("cupy"), names.cupy()
    arrays = [cupy.asarray(x) for x in case.inputs]

    def run() -> Any:
        return synchronised(program(xp, *arrays))

    return Prepared(run, to_numpy)


def synchronised(result: Any) -> Any:
    """Wait until the GPU has done what it was asked to."""
    cupy.cuda.get_current_stream().synchronize()
    return result


def to_numpy(result: Any) -> list[np.ndarray]:
    return [cupy.asnumpy(x) for x in several(result)]
