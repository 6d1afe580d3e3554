"""What a contender is: `prepare(case)` gives the call to time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Chunks, Work, several

THREADS = len(os.sched_getaffinity(0))
"""Threads that every contender may use."""

FEWEST = 4
"""Chunks at least; they are smaller where the input is."""


class Unavailable(Exception):
    """The contender cannot take part here, for the reason given."""


@dataclass(frozen=True)
class Case:
    """A work with its inputs."""

    work: Work
    dtype: str
    count: int
    """Elements asked for; the inputs have about so many."""
    inputs: list[np.ndarray] = field(repr=False)
    reference: list[np.ndarray] = field(repr=False)
    """NumPy's results, which the contenders' must agree with."""

    @classmethod
    def of(cls, work: Work, dtype: str, count: int) -> Case:
        """Return the case with newly made inputs and what NumPy makes of them."""
        inputs = work.inputs(count, dtype)
        return cls(work, dtype, count, inputs, work.reference(inputs))

    def chunks(self) -> Chunks:
        """Return the length of a chunk along each axis of each input."""
        return self.work.chunks(self.inputs, min(self.work.chunk, -(-self.count // FEWEST)))


@dataclass(frozen=True)
class Prepared:
    """A contender with its inputs in place."""

    run: Callable[[], Any]
    """The call that is timed; returns when the result is there."""
    to_numpy: Callable[[Any], list[np.ndarray]] | None = field(
        default=lambda result: [np.asarray(x) for x in several(result)]
    )
    """Turns what `run` returned into arrays; None where there is no result to check."""
    settle: Callable[[], Any] | None = None
    """Has everything compiled that later calls are timed with, where a first call does not wait."""


Prepare = Callable[[Case], Prepared]
