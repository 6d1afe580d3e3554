"""Which kernels the time pays for that has been spent without them: those of a graph together.

Nobody knows whether a program will be run again. Whoever buys as soon as renting has cost as much
spends at most twice what one would have spent who knew (R. M. Karp, "On-line algorithms versus
off-line algorithms: how much is it worth to know the future?", IFIP Congress (1992) 416-429). A
graph's plans are run together or not at all, so they are rented and bought together: at no time do
the compilations that its tasks have asked for take longer than its tasks have, unless other graphs
share its kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable

from gpusched.store import unfused, worthwhile
from gpusched.store.handles import Handle
from gpusched.store.unfused import Times

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
            cost = self._costs[handle.name] = worthwhile.expected(handle.kernel)
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
