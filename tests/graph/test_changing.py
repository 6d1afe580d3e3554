"""Calls that may change what others of their task read: `gpusched.graph.changing`."""

from __future__ import annotations

import operator
from typing import Any

import dask
import dask.array as da
import numpy as np

from gpusched.adapters.tasks import renamed
from gpusched.graph.changing import conflict, may_change
from gpusched.graph.segment import ProgramStep
from gpusched.plan.plan import Register
from gpusched.record.catalogue import has


def changes(array: Any) -> Any:
    array[:] = 0
    return array


def picked(array: int, index: int) -> ProgramStep:
    return ProgramStep(operator.getitem, (Register(array), Register(index)), recorded=True)


def test_what_is_picked_shares_nothing_with_its_index() -> None:
    changing = ProgramStep(changes, (Register(0),))
    assert conflict([changing, picked(2, 1)], 2) is None
    assert conflict([changing, picked(1, 0)], 2) is changing
    assert conflict([changing, picked(0, 1)], 2) is changing


def test_what_renames_tasks_of_an_array_given_to_delayed_changes_nothing() -> None:
    graph = dask.delayed(np.sum)(da.ones(4, chunks=2)).dask
    called = [f for node in graph.values() if (f := getattr(node, "func", None)) is renamed]
    assert len(called) == 3  # Of both chunks, and of the array that they become.
    assert has(renamed, "view")
    assert not may_change(ProgramStep(renamed, (Register(0),)))
