"""When a kernel is worth its compilation: seconds that are expected to be saved, and to be spent.

Every constant of the rules is here, with what it was measured by. How long compilations take on a
machine is learned from those that there have been.

Nobody knows whether a program will be run again. Whoever buys as soon as renting has cost as much
spends at most twice what one would have spent who knew (R. M. Karp, "On-line algorithms versus
off-line algorithms: how much is it worth to know the future?", IFIP Congress (1992) 416-429). A
graph's plans are run together or not at all, so they are rented and bought together (`Budgets`): at
no time do the compilations that its tasks have asked for take longer than its tasks have, unless
other graphs share its kernels.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable
from pathlib import Path
from typing import Any

from gpusched import forks
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import named
from gpusched.store import codefiles, kernelfiles, unfused
from gpusched.store.handles import Handle
from gpusched.store.processors import cores
from gpusched.store.unfused import Times

FILE = "compile-times.json"
"""In the cache directory; by the machine's name, since machines may share that."""

DEFAULT = 2.0
"""Times what is expected of a kernel, until something has been learned here: 1 on the machine that
the constants below were measured on, 1.8 on a newer EPYC whose cores other machines share, 2.4 on
that beside tasks. What is compiled for nothing costs the first run, what is late a part of it."""

_NEWEST = 0.1
"""Weight of the last compilation at least, so that a busy hour is forgotten."""

FIXED, STATEMENT, HEAVY, REDUCTION = 0.06, 0.01, 0.1, 0.1
"""Seconds of a compilation: for any kernel, for each statement, for each function such as `exp`,
and for each result that is a reduction. Fitted to 15 kernels on one core of a Xeon of 2.1 GHz, of
which the light ones took 0.07 to 0.12 s and those with three functions 0.5 s."""

SAVED = 0.5
"""Share of the unfused time that kernels save: at least half in 22 of 30 rows of performance.md."""

BESIDE = 1.5
"""How much longer a compilation takes beside tasks that use all of two cores."""


@dataclass(frozen=True)
class Learned:
    """What is known of a machine."""

    factor: float = DEFAULT
    """Seconds that compilations take, in times of what is expected where nothing is known."""
    compilations: int = 0

    def after(self, ratio: float) -> Learned:
        """Return what is known after one more compilation.

        Parameters
        ----------
        ratio
            Its seconds, in times of what was expected of it.

        Examples
        --------
        >>> from gpusched.store.worthwhile import Learned
        >>> Learned().after(4.0).after(1.0)
        Learned(factor=2.0, compilations=2)
        """
        count = self.compilations + 1
        weight = max(1 / count, _NEWEST)
        # A mean of logarithms: one that took ten times as long counts as one that took a tenth.
        return Learned(self.factor ** (1 - weight) * ratio**weight, count)


_lock = forks.lock()
_read: dict[Path | None, Learned] = {}


def expected(kernel: Kernel) -> float:
    """Return the seconds of processor time that a compilation is expected to take here."""
    return _units(kernel) * _known(kernelfiles.directory()).factor


def learn(kernel: Kernel, seconds: float) -> None:
    """Note how many seconds of processor time a kernel's compilation has taken."""
    if seconds <= 0:
        return
    with _lock:
        root = kernelfiles.directory()
        found = _read[root] = _known(root).after(seconds / _units(kernel))
    if root is not None:
        path = root / FILE
        known = codefiles.entries(path, _entry)
        kernelfiles.write_entries(
            path, known | {platform.node(): (found.factor, found.compilations)}
        )


def _units(kernel: Kernel) -> float:
    """Return the seconds that a kernel's compilation took where the constants were measured."""
    statements = len(kernel.statements)
    heavy = len({s.operation for s in kernel.statements if named(s.operation).heavy})
    reductions = sum(output.combine is not None for output in kernel.outputs)
    return FIXED + STATEMENT * statements + HEAVY * heavy + REDUCTION * reductions


def _known(root: Path | None) -> Learned:
    if root not in _read:
        entry = codefiles.entries(root and root / FILE, _entry).get(platform.node())
        _read[root] = Learned(*entry) if entry else Learned()
    return _read[root]


def _entry(told: Any) -> tuple[float, int]:
    factor, count = told
    return float(factor), int(count)


def gain(handles: Iterable[Handle], seconds: float, left: int, starting: float = 0.0,
         at_once: int | None = None) -> float:  # fmt: skip
    """Return the seconds that compiling is expected to save, in all threads; negative for a loss.

    Parameters
    ----------
    handles
        What a plan lacks.
    seconds
        Of processor time that its last run took without; of a device's time.
    left
        How many such runs are known to come; as much is expected as there has been, if that is
        more: a program that has been repeated will be.
    starting
        Seconds of processor time that the compiler takes before the first kernel.
    at_once
        How many such runs go on at once; as many as there are cores if that is not given.

    Notes
    -----
    Nobody knows how often a graph will come that has come twice. As soon as all processes have lost
    as much by doing without its kernels as these take to compile, that is done: whoever had known
    would have lost half of it at least, see `Budgets`. The first time a graph comes,
    its end is known, and most graphs come once.

    That a graph comes again matters where a process has no time without tasks. 34 programs of 30 MB
    to 4.5 GB, each computed six times in a row, took 7 s less of 95 for it, 30 of 237, 38 of 606
    and 26 of 1,705, compilations included; with pauses between, they took as long (replayed from
    the times of tasks without kernels). What is left is expected to take what the shortest of two
    runs has taken, since first runs take up to 2.4 times as long as later ones (1.1 in the median):
    by the first alone, first calls of two small programs of 300 MB took 0.23 and 0.19 s instead of
    0.16 each, as kernels were compiled beside them that they had no use for, and one of few large
    chunks 0.96 instead of 1.16.
    """
    waiting = list(handles)
    cost = starting + sum(expected(handle.kernel) for handle in waiting)
    # Runs that begin before the kernels are there have nothing of them.
    without = (at_once or cores()) * BESIDE * cost
    ahead = max(left * seconds, sum(handle.spent for handle in waiting)) - without
    if all(handle.repeated for handle in waiting):
        times = unfused.here()
        ahead = max(ahead, sum(times.total(handle.name) for handle in waiting))
    return SAVED * ahead - cost


# Which kernels the time pays for that has been spent without them ------------------------------

PLANS = 100
"""Plans that are remembered, those that ran last."""

Plan = tuple[Handle, ...]


class Budgets:
    """The plans that ran without their kernels, by graph.

    Processes that run the same graph know what all of them have spent, and decide alike.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self) -> None:
        self._graphs: dict[Plan, Hashable] = {}
        self._paid: dict[str, float] = {}
        """By a kernel's name, the seconds of its compilation if that was asked for, and else 0."""
        self._costs: dict[str, float] = {}
        """By a kernel's name, the seconds that its compilation is expected to take, as that was
        known when one of its plans ran last: to ask again for all plans would take 10 ms."""

    def note(self, kernels: Iterable[Handle], graph: str) -> None:
        """Remember a plan that has run without its kernels.

        Parameters
        ----------
        kernels
            What it lacks; it needs all of them.
        graph
            What it has run for; if that is unknown, the plan has to pay for itself.
        """
        plan = tuple(kernels)
        self._graphs.pop(plan, None)
        self._graphs[plan] = graph or plan
        for handle in plan:
            cost = self._costs[handle.name] = expected(handle.kernel)
            self._paid[handle.name] = cost if _is_asked(handle) else 0.0
        if len(self._graphs) > PLANS:
            self._forget(next(iter(self._graphs)))

    def _forget(self, plan: Plan) -> None:
        """Forget a plan, and the kernels that no other one lacks."""
        del self._graphs[plan]
        kept = {handle.name for other in self._graphs for handle in other}
        for name in {handle.name for handle in plan} - kept:
            del self._costs[name], self._paid[name]

    def affordable(self, starting: float) -> list[Handle]:
        """Return the kernels that are worth the time which nothing else on this machine uses.

        Parameters
        ----------
        starting
            Seconds of processor time that the compiler takes before the first kernel: a cost of
            all graphs together.
        """
        budgets = self._budgets(unfused.here())
        bought: dict[Handle, None] = {}
        opened: set[Hashable] = set()
        left = 0.0
        for first in (True, False):  # One plan of each graph; others if that pays for the start.
            for plan in filter(_waiting, self._graphs):
                cost, graph = self._cost(plan, bought), self._graphs[plan]
                most = budgets[graph] if first else min(budgets[graph], left - starting)
                if first == (graph in opened) or cost >= most:
                    continue
                opened.add(graph)
                budgets[graph] -= cost
                left += budgets[graph] if first else -cost
                bought |= dict.fromkeys(_waiting(plan))
            if left <= starting:
                return []
        self._paid |= {handle.name: self._costs[handle.name] for handle in bought}
        return list(bought)

    def _budgets(self, times: Times) -> defaultdict[Hashable, float]:
        """Return what each graph has spent without kernels, less what was asked for because of it.

        A kernel that several graphs lack is the last one's.
        """
        found: defaultdict[Hashable, float] = defaultdict(float)
        for handle, graph in {h: g for plan, g in self._graphs.items() for h in plan}.items():
            found[graph] += times.total(handle.name) - self._paid[handle.name]
        return found

    def _cost(self, plan: Plan, bought: Container[Handle]) -> float:
        """Return the seconds that compiling is expected to take what a plan still lacks."""
        return sum(self._costs[each.name] for each in _waiting(plan) if each not in bought)


def _is_asked(handle: Handle) -> bool:
    return handle.ready or handle.requested


def _waiting(plan: Plan) -> list[Handle]:
    """Return the kernels of a plan that nobody here has asked for yet."""
    return [handle for handle in plan if not _is_asked(handle)]
