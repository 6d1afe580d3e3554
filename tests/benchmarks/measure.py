"""Check every contender's result, then time them in turn."""

from __future__ import annotations

import gc
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, sleep  # noqa: TID251  between runs, so that clocks settle
from typing import Any

from tests.benchmarks.contenders import load
from tests.benchmarks.contenders.base import Case, Prepared, Unavailable

INTERPRETED = "dask", "dask-cluster", "dask-numexpr", "cubed", "numexpr", "numpy"
"""Contenders whose first call compiles nothing."""

LONG = 5.0
"""Seconds from which on such a first call is the timing: what is cold then does not count."""

SETTLE = 0.05
"""Seconds before each timing, for results to be released, and for the threads of the library before
it to stop spinning."""


@dataclass
class Timing:
    """What one contender did on one work and dtype."""

    seconds: list[float] = field(default_factory=list)
    """Wall times, a round each; a slow contender takes part in fewer rounds."""
    first: float | None = None
    """Wall time of the first call, with what it compiled; None where there was none."""
    second: float | None = None
    """Wall time of the second call, right after it; None where that is like all later ones."""
    error: float | None = None
    """Largest error, as the work measures it; None where there is no result."""
    absent: str = ""
    """Why it was not timed; empty when it was."""

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass
class _Entrant:
    """A contender that takes part."""

    prepared: Prepared
    rounds: int
    """Timings still wanted."""


def measure(case: Case, names: list[str], rounds: int, budget: float) -> dict[str, Timing]:
    """Return the timings by contender; those that cannot take part say why.

    The contenders take turns, in another order each round, so that a slow moment of the machine
    and what one leaves to the next (caches, threads that still spin) fall on all of them. Each is
    timed `rounds` times, or as often as `budget` seconds allow. A round before, of those that take
    part in all, is not timed: while others were made ready, the system took memory back.
    """
    timings = {name: Timing() for name in names}
    ready: dict[str, _Entrant] = {}
    for name, timing in timings.items():
        prepared = _prepare(case, name, timing)
        if prepared is not None:
            ready[name] = _Entrant(prepared, _warm_up(name, prepared, timing, rounds, budget))
    for entrant in ready.values():
        if entrant.rounds == rounds:
            seconds_of(entrant.prepared.run)
    shuffler = random.Random(0)
    for left in range(rounds, 0, -1):
        order = [name for name, entrant in ready.items() if entrant.rounds >= left]
        for name in shuffler.sample(order, len(order)):
            timings[name].seconds.append(seconds_of(ready[name].prepared.run))
    return timings


def _prepare(case: Case, name: str, timing: Timing) -> Prepared | None:
    """Return the contender with its first call made and checked; None if it is absent."""
    timing.absent = case.work.absent.get(name, "")
    if timing.absent:
        return None
    print(f"  {name}", file=sys.stderr, end="", flush=True)
    try:
        prepared = load(name)(case)
        check(case, prepared, timing)
    except (ImportError, Unavailable) as reason:
        timing.absent = str(reason)
    except Exception as error:  # noqa: BLE001
        # The page says so; the others are measured all the same.
        timing.absent = (
            f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        traceback.print_exc()
    return None if timing.absent else prepared


def check(case: Case, prepared: Prepared, timing: Timing) -> None:
    """Make the first call and compare its result with NumPy's.

    Where a first call does not wait for a compiler, the second is timed too, and the result of a
    call with all kernels is what is compared.
    """
    start = perf_counter()
    result = prepared.run()
    timing.first = perf_counter() - start
    if prepared.settle is not None:
        del result
        timing.second = seconds_of(prepared.run)
        _let_go()
        prepared.settle()
        _let_go()
        result = prepared.run()
    if prepared.to_numpy is None:
        return
    timing.error = case.work.worst(prepared.to_numpy(result), case.reference)
    if not timing.error <= case.work.tolerance:
        timing.absent = f"wrong result: error {timing.error:.3g}, allowed {case.work.tolerance:.3g}"


def _warm_up(name: str, prepared: Prepared, timing: Timing, rounds: int, budget: float) -> int:
    """Make the second call, and return how many are to be timed.

    A call that takes the whole budget is the timing.
    """
    if name in INTERPRETED and timing.first is not None and timing.first > LONG:
        timing.seconds.append(timing.first)
        return 0
    seconds = seconds_of(prepared.run)
    if seconds < budget:
        return min(rounds, max(3, int(budget / seconds)))
    timing.seconds.append(seconds)
    return 0


def seconds_of(run: Callable[[], Any]) -> float:
    """Time one run; its result is released after the clock has stopped."""
    _let_go()
    start = perf_counter()
    result = run()
    elapsed = perf_counter() - start
    del result
    return elapsed


def _let_go() -> None:
    """Wait for the end of what was before: a cluster with a result would not compute it again."""
    gc.collect()
    sleep(SETTLE)
