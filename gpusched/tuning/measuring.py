"""How long a kernel takes with each of several choices, taken in turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from gpusched.backends.devices import Device
from gpusched.editing.checking import differs
from gpusched.emit import choices
from gpusched.emit.kernel import Kernel, Options
from gpusched.store.tuned import Place
from gpusched.tuning.cases import Case

ROUNDS = 11
"""Measurements of each candidate."""
SHORTEST = 2e-3
"""Seconds that a measurement takes at least, so that the clock and the launch do not matter."""


@dataclass(frozen=True)
class Row:
    """A candidate, and what came of it."""

    options: Options
    seconds: float | None
    """Median of a call; None where it was not measured."""
    ratio: float | None
    """The same, in times the default's."""
    least: float | None = None
    """The shortest call, in times the default's: what a busy machine disturbs least."""
    problem: str = ""
    """Why it is not taken, however fast: its results differ, or it does not compile."""


@dataclass(frozen=True)
class Bench:
    """Where kernels are measured."""

    device: Device
    place: Place
    clock: Callable[[], float] = time.perf_counter

    def seconds(self, call: Callable[..., Any], arguments: tuple[Any, ...], times: int) -> float:
        """Return what a call takes, on average of so many in a row."""
        self.device.synchronize()
        started = self.clock()
        for _ in range(times):
            call(*arguments)
        self.device.synchronize()
        return (self.clock() - started) / times


def candidates(kernel: Kernel, target: str, given: dict[str, Any]) -> list[Options]:
    """Return all combinations to measure, the default first.

    Raises `ChoiceError` if a name or a value makes no sense for the kernel.

    Parameters
    ----------
    kernel
        The kernel.
    target
        ``"cpu"`` or ``"cuda"``.
    given
        Values by name: one, or several to choose from. What is left out is the compiler's to
        choose if anything is given, and tried in all sensible ways otherwise.
    """
    choices.check_names(kernel, target, given)
    known = choices.possible(kernel, target)
    default = choices.defaults(kernel, target)
    tried: dict[str, tuple[int, ...]] = {} if given else _sensible(known, target)
    for name, values in given.items():
        tried[name] = tuple(values) if isinstance(values, tuple | list) else (values,)
        for value in tried[name]:
            choices.check_value(target, name, value, known[name], f"kernel {kernel.name}")
    found = [
        replace(default, **dict(zip(tried, values, strict=True)))
        for values in itertools.product(*tried.values())
    ]
    return list(dict.fromkeys([default, *found]))


def _sensible(known: dict[str, tuple[int, ...]], target: str) -> dict[str, tuple[int, ...]]:
    """Return the values that are tried where the user says nothing."""
    if target == "cpu":
        return known
    few = {"block": (64, 128, 256, 512), "unroll": (1, 2, 4), "vector": known.get("vector", ())}
    return {name: few[name] for name in known}


def measure(
    case: Case, tried: list[Options], bench: Bench, tolerance: float | None = None
) -> list[Row]:
    """Return how long each candidate takes; the first is the default.

    Parameters
    ----------
    case
        The kernel and its arguments.
    tried
        The candidates.
    bench
        Where to measure.
    tolerance
        Largest relative difference of floating-point results from the default's; None for none.
    """
    calls: dict[Options, Callable[..., Any]] = {}
    problems: dict[Options, str] = {}
    expected: list[np.ndarray] = []
    for options in tried:
        try:
            call = bench.device.compile(replace(case.kernel, options=options)).call
        except MemoryError:
            raise
        except Exception as error:
            if not calls:
                raise  # The default: what is wrong is not the choice.
            problems[options] = f"does not compile: {error}"[:200]
            continue
        calls[options] = call
        found = _results(case, call, bench)
        expected = expected or found
        problem = _difference(expected, found, tolerance)
        if problem:
            problems[options] = problem
    times = _interleaved(case, {o: c for o, c in calls.items() if o not in problems}, bench)
    default = times[tried[0]]
    return [
        Row(o, median(times[o]), median(times[o]) / median(default), min(times[o]) / min(default))
        if o in times
        else Row(o, None, None, None, problems[o])
        for o in tried
    ]


def _difference(
    expected: list[np.ndarray], found: list[np.ndarray], tolerance: float | None
) -> str:
    """Return what is wrong with results, or nothing."""
    pairs = list(zip(expected, found, strict=True))
    if not any(differs(one, other, tolerance).any() for one, other in pairs):
        return ""
    with np.errstate(all="ignore"):
        relative = [
            float(np.nanmax(np.abs((other - one) / one))) if one.dtype.kind in "fc" else np.inf
            for one, other in pairs
        ]
    largest = max(relative)
    hint = f" (tolerance={1.1 * largest:.1e} would take them)" if 0 < largest < 1 else ""
    return f"other results than the default's{hint}"


def _results(case: Case, call: Callable[..., Any], bench: Bench) -> list[np.ndarray]:
    outputs = case.outputs(bench.device)
    call(*case.inputs, *outputs, *case.numbers)
    bench.device.synchronize()
    return [output.get() if hasattr(output, "get") else output for output in outputs]


def _interleaved(
    case: Case, calls: dict[Options, Callable[..., Any]], bench: Bench
) -> dict[Options, list[float]]:
    """Return the times of each candidate, measured in turns that begin with another each time."""
    arguments = (*case.inputs, *case.outputs(bench.device), *case.numbers)
    first = next(iter(calls.values()))
    times = max(1, int(SHORTEST / max(bench.seconds(first, arguments, 1), 1e-7)))
    found: dict[Options, list[float]] = {options: [] for options in calls}
    order = list(calls)
    for _ in range(ROUNDS):
        for options in order:
            found[options].append(bench.seconds(calls[options], arguments, times))
        order = order[1:] + order[:1]
    return found
