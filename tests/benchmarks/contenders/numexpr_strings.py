"""numexpr on strings; constants are arrays, since a literal would make float32 double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numexpr  # type: ignore[import-untyped]
import numpy as np

from tests.benchmarks.contenders.base import THREADS, Case, Prepared


def evaluator(dtype: str) -> Callable[..., Any]:
    """Return `evaluate(text, **values)`, in which numbers have that dtype."""

    def evaluate(text: str, **values: Any) -> np.ndarray:
        local = {k: np.array(v, dtype) if isinstance(v, float) else v for k, v in values.items()}
        result: np.ndarray = numexpr.evaluate(text, local_dict=local, global_dict={})
        return result

    return evaluate


def prepare(case: Case) -> Prepared:
    program, evaluate = case.work.programs["numexpr"], evaluator(case.dtype)

    def run() -> Any:
        numexpr.set_num_threads(THREADS)
        return program(evaluate, *case.inputs)

    return Prepared(run)
