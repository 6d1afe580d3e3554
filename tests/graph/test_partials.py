"""Partial applications: calls like any other, and objects of derived classes as they are."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

from gpusched.adapters.arrays import broadcast_trick
from gpusched.graph import disable, enable
from gpusched.graph.functions.partials import Guard, applied, bare, is_shown
from gpusched.store.statistics import statistics

pytestmark = pytest.mark.usefixtures("everything_fused")


def blocks(function: Any) -> Any:
    """Return what dask makes of three chunks with a function."""
    x = da.from_array(np.arange(24.0), chunks=8) + 1
    return x.map_blocks(function, dtype=float, meta=np.empty(0))


def computed(x: Any) -> Any:
    return x.compute(scheduler="sync")


def weighted(x: Any, weights: Any) -> Any:
    return x * weights + 1


HOLDING: dict[str, Callable[[Any], Any]] = {
    "a function of the user's": lambda w: partial(weighted, weights=w),
    "a ufunc": lambda w: partial(np.subtract, w),
    "a function of numpy's": lambda w: partial(np.where, w > 3, w),
    "nested": lambda w: partial(partial(weighted), weights=w),
}


@pytest.mark.parametrize("name", HOLDING)
def test_an_array_in_it_may_change_between_two_computations(name: str) -> None:
    weights = np.arange(8.0)
    x = blocks(HOLDING[name](weights))
    (optimized,) = dask.optimize(x)
    for _ in range(2):
        with disable():
            expected = computed(x)
        for each in (x, optimized):
            np.testing.assert_array_equal(computed(each), expected)
        weights *= -3
    assert statistics().fused_tasks > 0


def test_an_object_with_any_attribute_is_called_as_it_is() -> None:
    calls = MagicMock(side_effect=weighted)
    x = blocks(partial(calls, weights=2.0)) * 2
    np.testing.assert_array_equal(computed(x), (np.arange(1.0, 25.0) * 2 + 1) * 2)
    x = da.from_array(np.arange(24.0), chunks=8).map_blocks(
        MagicMock(side_effect=np.sin), dtype=float
    )
    np.testing.assert_allclose(computed(x + 1), np.sin(np.arange(24.0)) + 1)


def test_chunks_with_other_arrays_share_a_program() -> None:
    x = da.from_array(np.arange(8.0), chunks=8)
    held = [partial(weighted, weights=np.full(8, float(k))) for k in range(3)]
    found = computed(da.stack([x.map_blocks(each, dtype=float) for each in held]))
    np.testing.assert_array_equal(found[2], np.arange(8) * 2 + 1)
    assert statistics().recordings == 1


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a keyword": lambda p: p.keywords.update(weights=50.0),
    "another keyword": lambda p: p.keywords.update(more=3.0),
    "its state": lambda p: p.__setstate__((np.hypot, (4.0,), {}, {})),
    "its list": lambda p: p.keywords["more"].append(9.0),
    "its array": lambda p: p.keywords["weights"].fill(7.0),
}


def changing(x: Any, weights: Any, more: Any = 0.0) -> Any:
    return x * weights + np.sum(more)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("nested", [False, True])
def test_it_may_change_after_its_graph_was_optimised(name: str, nested: bool) -> None:
    found = {}
    for fuses in (False, True):
        held: Any = {"weights": np.arange(8.0) if name == "its array" else 2.0}
        if name == "its list":
            held["more"] = [1.0, 2.0]
        inner = partial(changing, **held)
        function: Any = inner
        if nested:
            inner.attribute = "keeps it from being made one with the other"  # type: ignore[attr-defined]
            function = partial(inner)
        with enable() if fuses else disable():
            other = blocks(partial(changing, **held)) * 2
            x, other = dask.optimize(blocks(function) * 2, other)
            before = computed(x)
            CHANGES[name](inner)
            found[fuses] = [each.tolist() for each in (before, computed(x), computed(other))]
            (again,) = dask.optimize(x)
            found[fuses].append(computed(again).tolist())
    assert found[True] == found[False]
    assert found[True][0] != found[True][1]


def test_a_function_before_it_in_its_task_may_change_it() -> None:
    function = partial(weighted, weights=2.0)

    def change(block: Any) -> Any:
        function.keywords["weights"] += 1.0
        return block

    found = []
    for fuses in (False, True):
        function.keywords["weights"] = 2.0
        x = da.from_array(np.arange(8.0), chunks=8)
        with enable() if fuses else disable():
            made = x.map_blocks(change, dtype=float).map_blocks(function, dtype=float) * 2
            found.append(computed(made).tolist())
    assert found[True] == found[False]


@pytest.mark.parametrize("changed", [0, 1])
def test_one_guard_notices_changes_of_any(changed: int) -> None:
    held = [partial(weighted, weights=2.0), partial(weighted, weights=3.0)]
    x = da.from_array(np.arange(24.0), chunks=8)
    (optimised,) = dask.optimize(
        (x + 1).map_blocks(held[0]).map_blocks(held[1]).map_blocks(held[0])
    )
    found = [node for node in dict(optimised.dask).values() if isinstance(node, Task)]
    guards = [{k for part in each.func.segments for k in part.guards} for each in found]
    assert list(map(len, guards)) == [1, 1, 1]
    held[changed].keywords["weights"] = 50.0
    expected = held[0](held[1](held[0](np.arange(24.0) + 1)))
    np.testing.assert_array_equal(computed(optimised), expected)


def between(block: Any) -> Any:
    between.calls = getattr(between, "calls", 0) + 1  # type: ignore[attr-defined]
    return block


@pytest.mark.parametrize(("call", "times"), [(np.sort, 1), (between, 2)])
@pytest.mark.parametrize("changed", [False, True])
def test_a_guard_is_asked_again_after_what_may_change_anything(
    call: Callable[..., Any], times: int, changed: bool
) -> None:
    held = [partial(weighted, weights=2.0), partial(weighted, weights=3.0)]
    x = da.from_array(np.arange(24.0), chunks=24)
    made = x.map_blocks(held[0]).map_blocks(call, dtype=float).map_blocks(held[1]) * 2
    (optimised,) = dask.optimize(made)
    (program,) = [each.func for each in dict(optimised.dask).values() if isinstance(each, Task)]
    recorded = [part for part in program.segments if part.recorded]
    assert len(recorded) == 2
    assert sum(map(bool, (part.guards for part in recorded))) == times
    for each in held if changed else ():
        each.keywords["weights"] += 50.0
    expected = held[1](held[0](np.arange(24.0))) * 2
    np.testing.assert_array_equal(computed(optimised), expected)


def test_one_among_arguments_may_change_too() -> None:
    def call(block: Any, function: Any) -> Any:
        return function(block) + 1

    held = [partial(np.multiply, 3.0) for _ in range(2)]
    x = da.from_array(np.arange(24.0), chunks=8)
    made = [(x + k).map_blocks(call, each, dtype=float) for k, each in enumerate(held)]
    optimised = dask.optimize(*made)
    held[1].__setstate__((np.add, (100.0,), {}, {}))  # type: ignore[attr-defined]
    with disable():
        expected = [computed(each) for each in made]
    np.testing.assert_array_equal([computed(each) for each in optimised], expected)


def test_a_changed_one_is_sent_as_it_is_and_others_are_not_sent() -> None:
    function = partial(weighted, weights=2.0)
    guard = Guard((function,))
    unchanged = pickle.dumps(guard)
    assert pickle.loads(unchanged).holds()
    assert b"weighted" not in unchanged
    function.keywords["weights"] = 3.0
    received = pickle.loads(pickle.dumps(guard))
    assert not received.holds()
    assert received.functions[0](1.0) == 4.0


class Counted(partial):  # type: ignore[type-arg]
    """Does more than its function when it is called."""

    calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        Counted.calls += 1
        return super().__call__(*args, **kwargs) * Counted.calls


@pytest.mark.parametrize("function", [weighted, np.add])
def test_derived_classes_are_called_as_they_are(function: Any) -> None:
    found = {}
    for fuses in (False, True):
        Counted.calls = 0
        with enable() if fuses else disable():
            found[fuses] = computed(blocks(Counted(function, 2.0))).tolist(), Counted.calls
    assert found[True] == found[False]


def test_arguments_are_in_the_order_of_the_call() -> None:
    outer = partial(partial(weighted, 1, weights=2), weights=3)
    assert applied(outer, (4,), {"weights": 5}) == (weighted, (1, 4), {"weights": 5})
    assert applied(Counted(max, 1), (2,), {})[1] == (2,)
    assert bare(outer) is weighted


@pytest.mark.parametrize(
    ("maker", "options", "shown"),
    [
        (np.ones_like, {"dtype": np.dtype("f8")}, True),
        (np.full_like, {"dtype": np.dtype("i4"), "fill_value": np.int8(3), "order": "C"}, True),
        (np.full_like, {"dtype": np.dtype("f8"), "fill_value": [3.0]}, False),
        (np.ones_like, {"dtype": np.dtype(("f8", 2))}, False),
        (np.ones_like, {"dtype": np.dtype(object)}, False),
        (np.ones_like, {"dtype": np.dtype("f8"), "meta": np.ma.array([1.0])}, False),
        (np.ones_like, {"dtype": np.dtype("f8"), "subok": True}, False),
        (np.ones_like, {}, False),
        (lambda meta, shape, dtype: np.ones(shape, dtype), {"dtype": np.dtype("f8")}, False),
    ],
)
def test_which_calls_surely_show_one_element(maker: Any, options: Any, shown: bool) -> None:
    function = partial(broadcast_trick(maker), **options)
    assert is_shown(*applied(function, [(2,)], {})) is shown
    assert not is_shown(*applied(function, [(2,), 1], {}))


@pytest.mark.skipif(not hasattr(functools, "Placeholder"), reason="Python 3.14 has them")
def test_arguments_that_the_call_gives_stay_where_they_are() -> None:
    late = partial(weighted, functools.Placeholder, 3.0)  # type: ignore[attr-defined]
    assert applied(late, (1,), {}) == (late, (1,), {})
    np.testing.assert_array_equal(computed(blocks(late)), np.arange(1.0, 25) * 3 + 1)
