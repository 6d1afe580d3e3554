"""NumPy on whole arrays, in one thread."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.contenders.base import Prepared
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    return Prepared(lambda: work.function(np, *inputs))
