"""Runs many cases and counts what comes of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tests.differential import functions, programs, report, shrinking
from tests.differential.case import Case
from tests.differential.comparing import Difference, differences
from tests.differential.running import Run, Schedulers, TooLongError, run

GENERATORS: dict[str, Callable[[int], Case]] = {
    "functions": functions.generate,
    "programs": programs.generate,
}

PERTURBED = 3
"""How often a loose case is repeated with other inputs, to learn how it amplifies rounding."""


@dataclass
class Result:
    """What came of one case."""

    case: Case
    found: list[Difference]
    tasks: int = 0
    fused: int = 0
    raised: bool = False
    """Whether plain dask raises an exception."""


@dataclass
class Counts:
    """What came of many."""

    cases: int = 0
    failures: int = 0
    fused_cases: int = 0
    """Cases in which at least one kernel was launched."""
    raising: int = 0
    """Cases in which plain dask raises an exception."""
    tasks: int = 0
    fused: int = 0
    categories: Counter[str] = field(default_factory=Counter)
    """Failing cases by the category of their differences; a case may be in several."""
    features: Counter[str] = field(default_factory=Counter)
    """Failing cases by what is in them."""

    def add(self, result: Result) -> None:
        self.cases += 1
        self.failures += bool(result.found)
        self.fused_cases += result.fused > 0
        self.raising += result.raised
        self.tasks += result.tasks
        self.fused += result.fused
        self.categories.update({each.category for each in result.found})
        if result.found:
            self.features.update(result.case.features)


def check(case: Case, schedulers: Schedulers) -> Result:
    """Run a case plain and fused, and compare."""
    try:
        plain = run(case, False, schedulers)
    except TooLongError:
        return Result(case, [])
    try:
        fused = run(case, True, schedulers)
    except TooLongError as error:
        return Result(case, [Difference("exception", "main", f"gpusched: {error}")])
    found = differences(case, plain, fused)
    if found and all(each.close for each in found):
        found = _beyond_rounding(case, plain, fused, found, schedulers)
    raised = any(outcome.error for outcome in plain.outcomes.values())
    return Result(case, found, fused.tasks, fused.fused, raised)


def _beyond_rounding(case: Case, plain: Run, fused: Run, found: list[Difference],
                     schedulers: Schedulers) -> list[Difference]:  # fmt: skip
    """Return the differences, or none if inputs that differ by rounding make as large ones."""
    for number in range(PERTURBED):
        other = run(_perturbed(case, number), False, schedulers)
        shaken = differences(case, plain, other)
        places = {each.where for each in shaken if each.category not in ("mutation", "state")}
        found = [each for each in found if each.where not in places]
        if not found:
            return []
    return found


def _perturbed(case: Case, number: int) -> Case:
    """Return a case whose float inputs are off by a few units in the last place."""
    lines = f"""

for _name, _array in DATA.items():
    if isinstance(_array, np.ndarray) and _array.dtype.kind == "f":
        _rng = np.random.default_rng({number})
        _size = 8 * np.finfo(_array.dtype).eps
        with np.errstate(all="ignore"):
            _factor = 1 + _size * _rng.uniform(-1, 1, _array.shape)
            DATA[_name] = (_array * _factor).astype(_array.dtype)
"""
    return replace(case, source=case.source + lines)


def shrunk(result: Result, schedulers: Schedulers, attempts: int = shrinking.ATTEMPTS) -> Result:
    """Return a smaller case with a difference of the same category."""
    category = result.found[0].category
    best = result

    def fails(case: Case) -> bool:
        nonlocal best
        try:
            again = check(case, schedulers)
        except Exception:  # not a program any more
            return False
        if again.raised and not result.raised:
            return False
        if any(each.category == category for each in again.found):
            best = again
            return True
        return False

    shrinking.shrink(result.case, fails, attempts)
    return best


def campaign(kinds: Iterable[str], first: int, *, cases: int | None = None,
             seconds: float | None = None, schedulers: Schedulers,
             on_result: Callable[[Result], None] = lambda result: None,
             generators: Mapping[str, Callable[[int], Case]] = GENERATORS) -> Counts:  # fmt: skip
    """Run cases of consecutive seeds until there are enough, or the time is over.

    Parameters
    ----------
    kinds
        Which generators, in turn.
    first
        The first seed.
    cases, seconds
        How many cases of each kind, or for how long.
    on_result
        Called with each result.
    generators
        Those that there are, by name.
    """
    counts = Counts()
    ends = None if seconds is None else time.monotonic() + seconds
    seed = first
    names = list(kinds)
    while cases is None or seed < first + cases:
        for kind in names:
            if ends is not None and time.monotonic() > ends:
                return counts
            result = check(generators[kind](seed), schedulers)
            counts.add(result)
            on_result(result)
        seed += 1
    return counts


def scripted(result: Result) -> str:
    """Return a failing case as a script."""
    with np.printoptions(threshold=50):
        return report.script(result.case, result.found)
