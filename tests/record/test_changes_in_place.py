"""Arrays that a program changes in place: what shows them is right, or the recording ends.

The examination of users' functions counts on it, which does not follow what shares memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.plan.expression import UnrecordableError
from gpusched.record.catalogue import NAMES
from gpusched.record.handlers import HANDLERS, METHODS
from tests.record.recording import assert_same, record

ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((0,), {}), ((1,), {}), ((-1, 0), {}), ((0, 1), {}), (((6,),), {}), (((2, 3),), {}),
    ((None,), {}), ((1.5, 2.5), {}), ((float,), {}), (((0, 1),), {}), ((1, 0), {}),
    ((), {"axis": 0}), ((), {"axis": 1, "keepdims": True}), ((1,), {"axis": 0}), ((1, 1), {}),
    ((np.arange(2), 1), {}), (((2, 2, 3),), {}),
]  # fmt: skip
"""What follows an array in a call, of one function or the other."""

Change = Callable[[Any], Any]
CALLED = [getattr(np, name) for name in NAMES["pure"]["numpy"].split()]
"""What is called between kernels; some of it has a handler, too."""


def set_first(y: Any) -> Any:
    y[:1] = 7
    return y


def set_chosen(y: Any) -> Any:
    y[y > 3] = 7
    return y


CHANGES: list[Change] = [lambda y: operator.iadd(y, 1), set_first, set_chosen]
ITEMS: dict[str, Change] = {
    "T": lambda y: y.T, "real": lambda y: y.real, "piece": lambda y: y[1:], "row": lambda y: y[0],
    "whole": lambda y: y[...], "rows": lambda y: next(iter(y)), "column": lambda y: y[:, None],
    "same": lambda y: y, "astype": lambda y: y.astype(y.dtype, copy=False), "other": lambda y: +y,
}  # fmt: skip


@cache
def calls() -> dict[str, Change]:
    """Return calls of all functions and methods that are recorded, by a name.

    Those that NumPy makes an array by.
    """
    found = dict(ITEMS)
    for k, (args, names) in enumerate(ARGUMENTS):
        for function in {*HANDLERS, *CALLED} - {np.empty_like}:
            name = f"{function.__module__}.{function.__name__}"
            found[f"{name} {k}"] = lambda y, f=function, a=args, n=names: f(y, *deepcopy(a), **n)
            found[f"{name} of a list {k}"] = lambda y, f=function, a=args, n=names: f(
                [y], *deepcopy(a), **n
            )
        for method in METHODS:
            found[f".{method} {k}"] = lambda y, m=method, a=args, n=names: getattr(y, m)(*a, **n)
    y = np.arange(6.0).reshape(2, 3)
    return {n: call for n, call in found.items() if type(outcome(call, y)) is np.ndarray}


def outcome(function: Change, x: np.ndarray) -> Any:
    """Return what a program returns; None if it raises."""
    try:
        return function(x)
    except Exception:  # noqa: BLE001
        return None


def compare(function: Change) -> bool:
    """Return whether a program is recorded; assert that it gives what it gives NumPy then."""
    x = np.arange(6.0).reshape(2, 3)
    with np.errstate(all="ignore"):
        expected = outcome(function, x)
        if expected is None or any(type(each) is not np.ndarray for each in expected):
            return False
        try:
            found = record(function, x.copy(), backend="python")
        except UnrecordableError:
            return False
        for one, other in zip(found.result, expected, strict=True):
            assert_same(one, other)
        for one, other in zip(found.run(x + 1), function(x + 1), strict=True):
            assert_same(one, other)
    return True


def shown_before(call: Change, change: Change) -> Change:
    """Return a program that changes what something may show."""

    def program(x: Any) -> Any:
        y = x * 2
        shown = call(y)
        y = change(y)
        return shown, y

    return program


def changed_through(call: Change, change: Change) -> Change:
    """Return a program that changes what may show something."""

    def program(x: Any) -> Any:
        y = x * 2
        return change(call(y)), y

    return program


@pytest.mark.parametrize("change", range(len(CHANGES)))
@pytest.mark.parametrize("program", [shown_before, changed_through])
def test_all_that_may_show_an_array(program: Any, change: int) -> None:
    names = [name for name, call in calls().items() if compare(program(call, CHANGES[change]))]
    assert len(names) > 100


@given(st.data())
def test_several_that_show_each_other(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(calls())), min_size=1, max_size=3))
    steps = [(data.draw(st.sampled_from(CHANGES)), data.draw(st.integers(0, 9))) for _ in range(2)]

    def program(x: Any) -> Any:
        arrays = [x * 2, x]
        for name in names:
            arrays.append(calls()[name](arrays[-1]))
        for change, k in steps:
            k %= len(arrays)
            arrays[k] = change(arrays[k])
        return (*arrays[:1], *arrays[2:])

    compare(program)
