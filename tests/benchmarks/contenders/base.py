"""What a contender is: `prepare(work, inputs)` gives the call to time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks.works import Work

THREADS = len(os.sched_getaffinity(0))
"""Threads that every contender may use."""

CHUNK = 4 << 20
"""Elements of a chunk, for the dask contenders."""

FEWEST = 4
"""Chunks at least; they are smaller where the input is."""


class Unavailable(Exception):
    """The contender cannot take part here, for the reason given."""


@dataclass(frozen=True)
class Prepared:
    """A contender with its inputs in place."""

    run: Callable[[], Any]
    """The call that is timed; returns when the result is there."""
    to_numpy: Callable[[Any], np.ndarray] | None = np.asarray
    """Turns what `run` returned into an array; None where there is no result to check."""


Prepare = Callable[[Work, list[np.ndarray]], Prepared]
