"""Check every contender's result, then time them in turn."""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, sleep

import numpy as np

from tests.benchmarks.contenders import load
from tests.benchmarks.contenders.base import Prepared, Unavailable
from tests.benchmarks.works import Work

SETTLE = 0.05
"""Seconds before each timing, for the threads of the library before it to stop spinning."""


@dataclass
class Timing:
    """What one contender did on one work and dtype."""

    seconds: list[float] = field(default_factory=list)
    """One wall time a round."""
    error: float | None = None
    """Largest error, in units of epsilon times the largest result; None where not checked."""
    absent: str = ""
    """Why it was not timed; empty when it was."""

    @property
    def median(self) -> float:
        return median(self.seconds)


def measure(work: Work, dtype: str, count: int, names: list[str], rounds: int) -> dict[str, Timing]:
    """Return the timings by contender; those that cannot take part say why.

    The contenders take turns, in another order each round, so that a slow moment of the machine
    and what one leaves to the next (caches, threads that still spin) fall on all of them.
    """
    inputs = work.inputs(count, dtype)
    reference = work.reference(inputs)
    timings = {name: Timing() for name in names}
    ready: dict[str, Prepared] = {}
    for name, timing in timings.items():
        try:
            prepared = load(name)(work, inputs)
        except (ImportError, Unavailable) as reason:
            timing.absent = str(reason)
            continue
        check(work, prepared, reference, timing)
        if not timing.absent:
            ready[name] = prepared
    del reference
    order, shuffler = list(ready), random.Random(0)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            timings[name].seconds.append(_seconds(ready[name]))
    return timings


def check(work: Work, prepared: Prepared, reference: np.ndarray, timing: Timing) -> None:
    """Warm the contender up and compare its result with the reference."""
    result = prepared.run()
    if prepared.to_numpy is not None:
        timing.error = work.error(prepared.to_numpy(result), reference)
        if not timing.error <= work.tolerance:
            timing.absent = f"wrong result: {timing.error:.0f} eps, allowed {work.tolerance:.0f}"
    del result
    prepared.run()


def _seconds(prepared: Prepared) -> float:
    """Time one run; its result is released after the clock has stopped."""
    gc.collect()
    sleep(SETTLE)
    start = perf_counter()
    result = prepared.run()
    elapsed = perf_counter() - start
    del result
    return elapsed
