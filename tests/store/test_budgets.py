"""What may be spent on compilations: never more than was spent without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.backends.cache import reference
from gpusched.emit.kernel import Kernel
from gpusched.store import unfused, worthwhile
from gpusched.store.handles import Handle
from gpusched.store.unfused import Times
from gpusched.store.worthwhile import Budgets
from tests.store.test_cache import sample_kernel

START = 0.65


numbered = cache(lambda number: sample_kernel(f"float64({number})"))
"""One of many kernels, always the same for a number."""


class Session:
    """Runs graphs without their kernels, on a clock of its own, and asks for what they pay for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = Times(None)
        self.costs: dict[str, float] = {}
        self.asked: list[Handle] = []
        self.budgets = Budgets()
        monkeypatch.setattr(unfused, "here", lambda: self.times)
        monkeypatch.setattr(worthwhile, "expected", lambda kernel: self.costs[kernel.name])

    def kernel(self, cost: float) -> Handle:
        kernel = numbered(len(self.costs))
        self.costs[kernel.name] = cost
        return Handle(kernel, lambda: None, lambda: reference(kernel))

    def run(self, seconds: float, *kernels: Handle, graph: str = "", starting: float = 0.0) -> None:
        for each in kernels:
            self.times.add(each.name, seconds / len(kernels))
        self.budgets.note([each for each in kernels if not each.ready], graph)
        found = self.budgets.affordable(0.0 if self.asked else starting)
        for each in found:
            each.requested = True
        self.asked += found

    def spent(self) -> float:
        return sum(map(self.times.total, self.costs))

    def cost(self) -> float:
        return sum(self.costs[each.name] for each in self.asked)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    return Session(monkeypatch)


def test_plans_of_one_graph_pay_for_each_other(session: Session) -> None:
    """A script of four seconds on twelve chunks, by the times that `make demo` takes."""
    costs = dict.fromkeys(("aspect", "slope"), 0.9) | dict.fromkeys(("shade", "rugged"), 0.76)
    seconds = {"aspect": 1.65, "slope": 1.3, "shade": 0.6, "rugged": 0.5}
    kernels = {name: session.kernel(cost) for name, cost in costs.items()}
    for _ in range(12):
        for name, kernel in kernels.items():
            session.run(seconds[name] / 12, kernel, graph="demo", starting=START)
    assert set(session.asked) == set(kernels.values())
    assert seconds["shade"] < costs["shade"] and session.cost() <= session.spent()


def test_plans_of_different_graphs_do_not(session: Session) -> None:
    """A notebook's expressions, each of which runs once, for less than its compilation takes."""
    for number in range(30):
        session.run(0.15, session.kernel(0.2), graph=f"expression {number}", starting=START)
    assert session.spent() > 20 * 0.2 and not session.asked


def test_what_is_known_of_no_graph_pays_for_itself(session: Session) -> None:
    session.run(2.0, session.kernel(1.0), starting=2.0)
    session.run(0.9, other := session.kernel(1.0), starting=2.0)
    assert not session.asked
    session.run(1.2, other, starting=1.0)
    assert len(session.asked) == 2


def test_a_graph_that_is_made_again_goes_on_with_what_was_spent(session: Session) -> None:
    kernel = session.kernel(1.0)
    for step in range(5):
        session.run(0.3, kernel, graph=f"step {step}")
        assert bool(session.asked) == (step >= 3)


def test_a_kernel_of_two_plans_is_paid_for_once(session: Session) -> None:
    shared, one, other = session.kernel(1.0), session.kernel(0.1), session.kernel(0.1)
    session.run(1.05, shared, one, graph="g")
    assert not session.asked
    session.run(0.2, shared, other, graph="g")
    assert set(session.asked) == {shared, one, other} and session.cost() < session.spent()


def test_old_plans_are_forgotten(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worthwhile, "PLANS", 2)
    for _ in range(4):
        session.run(0.5, session.kernel(1.0), graph="g")
    assert not session.asked, "two of them have spent no more than one takes"
    session.run(0.6, session.kernel(1.0), graph="g")
    assert len(session.asked) == 1


def test_kernels_of_forgotten_plans_are_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worthwhile, "PLANS", 2)
    shared = session.kernel(1.0)
    for _ in range(9):
        session.run(0.1, shared, session.kernel(1.0), graph="g")
    found = session.budgets
    assert set(found._costs) == set(found._paid) == {h.name for p in found._graphs for h in p}
    assert shared.name in found._costs


GRAPHS = "a", "b", "c"
"""Which share no kernels."""


@st.composite
def runs(draw: Callable[..., int]) -> list[tuple[float, tuple[int, ...], str]]:
    """Return seconds, which kernels, and the graph, of runs of plans."""
    plans = st.sets(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
    run = st.tuples(st.floats(0.02, 2.0), plans, st.sampled_from(GRAPHS))
    return list(draw(st.lists(run, max_size=12)))


@given(runs=runs(), costs=st.lists(st.floats(0.05, 3.0), min_size=6, max_size=6),
       starting=st.floats(0, 2))  # fmt: skip
def test_compilations_never_take_longer_than_what_was_spent_without(
    runs: list[tuple[float, tuple[int, ...], str]], costs: list[float], starting: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        session = Session(patch)
        kernels = {graph: [session.kernel(cost) for cost in costs] for graph in GRAPHS}
        for seconds, plan, graph in runs:
            own = (kernels[graph][k] for k in plan)
            session.run(seconds, *own, graph=graph, starting=starting)
            assert session.cost() <= session.spent() + 1e-9
            assert len(set(session.asked)) == len(session.asked)


def test_a_run_asks_for_the_costs_of_its_own_plan_only(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        session.run(0.1, session.kernel(1.0), session.kernel(1.0))
    asked: list[str] = []

    def expected(kernel: Kernel) -> float:
        asked.append(kernel.name)
        return session.costs[kernel.name]

    monkeypatch.setattr(worthwhile, "expected", expected)
    last = session.kernel(1.0)
    session.run(0.1, last)
    assert asked == [last.name]
