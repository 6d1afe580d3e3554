"""What a segment remembers of inputs of each kind."""

from __future__ import annotations

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.graph import decisions
from gpusched.graph.decisions import Direct, Plans
from gpusched.graph.remembered import CONSTANTS, Remembered
from gpusched.plan.plan import Plan

KEY = ((np.dtype(float), (3,), (8,)),)
OTHER = ((np.dtype(float), (4,), (8,)),)


def plan(nbytes: int = 0) -> Plan:
    return Plan([], 1, (), (), ((0, np.empty(nbytes, np.int8)),))


def test_the_plan_that_held_last_comes_first() -> None:
    kept, plans = Remembered(), Plans((plan(), plan()))
    kept.add(KEY, plans)
    kept.held_last(KEY, plans, plans.plans[1])
    found = kept.get(KEY)
    assert isinstance(found, Plans)
    assert found.plans == plans.plans[::-1]


def test_plans_that_were_cleared_do_not_come_back() -> None:
    """Another thread may run one of them meanwhile."""
    kept, plans = Remembered(), Plans((plan(), plan()))
    kept.add(KEY, plans)
    kept.clear()
    kept.held_last(KEY, plans, plans.plans[1])
    assert kept.get(KEY) is None


def test_what_cannot_be_compared_is_not_remembered() -> None:
    kept = Remembered()
    kept.add(None, Plans((plan(),)))
    assert not kept.values()
    assert kept.newness(None) == decisions.UNCOMPARABLE


def test_plans_with_large_arrays_make_room_for_others() -> None:
    kept = Remembered()
    decision = Direct("f", GraphBreak.SMALL("small"))
    kept.add(KEY, Plans((plan(CONSTANTS),)))
    kept.add("small", decision)
    kept.add(OTHER, Plans((plan(CONSTANTS // 2),)))
    assert kept.get(KEY) is None
    assert kept.get("small") is decision
    assert kept.get(OTHER) is not None


def test_news_is_given_once() -> None:
    kept = Remembered()
    assert kept.newness(KEY) == decisions.FIRST
    kept.add(KEY, Plans((plan(),)))
    assert kept.newness(OTHER) == "another shape of input 0"
    kept.clear()
    assert kept.newness(OTHER) == decisions.CHANGED
    assert kept.newness(OTHER) == decisions.FIRST
