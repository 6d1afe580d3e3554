"""What each reader of a chunk computes by itself: tasks and bytes are counted, values compared."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.tasks import DataNode, Task, TaskRef
from gpusched.graph import disable, enable, merging, optimize
from gpusched.graph.merging import merged
from gpusched.graph.sizes import Sizes
from gpusched.graph.table import Table, uses

CHUNKS = 4
SETTINGS = {
    "gpusched.fusion.merge-bytes": 1,
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.strict": True,
    "gpusched.batching.tasks": 0,
}


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch, no_compiler: None) -> Iterator[None]:
    monkeypatch.setattr(merging, "threads", lambda: 1)
    with dask.config.set(SETTINGS), enable():
        gpusched.reset_statistics()
        yield


def numbers(seed: int = 0) -> Any:
    """Return an array of four chunks that are in memory."""
    values = np.random.default_rng(seed).uniform(0.5, 2, (80, 10))
    return da.from_array(values, chunks=(20, 10)).persist(scheduler="sync")


def compared(*arrays: Any, **tolerance: float) -> gpusched.Statistics:
    """Return the counts of a computation, whose results are plain dask's."""
    gpusched.reset_statistics()
    found = dask.compute(*arrays, scheduler="sync")
    counts = gpusched.statistics()
    with disable():
        plain = dask.compute(*arrays, scheduler="sync")
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
    return counts


def test_deviations_are_computed_by_those_who_multiply_them() -> None:
    x, y = numbers(), numbers(1)
    dx, dy = x - x.mean(axis=0), y - y.mean(axis=0)
    counts = compared((dx * dy).sum(axis=0), (dx**2).sum(axis=0), rtol=1e-11)
    assert counts.bytes_written < x.nbytes / 2


def test_masked_fields_are_read_where_they_are() -> None:
    x, y = numbers(), numbers(1)
    valid = ~np.isnan(x) & ~np.isnan(y)
    x, y = da.where(valid, x, np.nan), da.where(valid, y, np.nan)
    means = da.nanmean(x, axis=0), da.nanmean(y, axis=0)
    together = da.nanmean((x - means[0]) * (y - means[1]), axis=0)
    result = together / (da.nanstd(x, axis=0) * da.nanstd(y, axis=0))
    compared(result, rtol=1e-11)
    assert gpusched.explain(result).totals.tasks_after == 26 < 9 * CHUNKS


def test_what_costs_more_than_a_write_is_written_once() -> None:
    x = numbers()
    powers = np.exp(x - x.max(axis=0))
    sums = powers.sum(axis=0)
    counts = compared(powers / sums, rtol=1e-12)
    assert counts.bytes_written >= 2 * x.nbytes


def test_what_functions_need_that_are_not_recorded_is_computed_once() -> None:
    x = numbers()
    shifted = x - x.mean(axis=0)
    sorts = [shifted.map_blocks(sorted_rows, dtype="f8"), -shifted.map_blocks(sorted_rows)]
    results = [*sorts, (shifted * 2).sum(axis=0)]
    kept = [key for key in optimised(*results) if str(key[0]).startswith("sub")]
    assert len(kept) == CHUNKS
    compared(*results, rtol=1e-11)


def test_annotated_tasks_stay_as_they_are() -> None:
    x = numbers()
    with dask.annotate(priority=1):
        shifted = x - x.mean(axis=0)
    results = (shifted * 2).sum(axis=0), (shifted * x).max(axis=0)
    assert len([key for key in optimised(*results) if str(key[0]).startswith("sub")]) == CHUNKS


def optimised(*arrays: Any) -> dict[Any, Any]:
    graph = HighLevelGraph.merge(*(x.dask for x in arrays))
    return dict(optimize(graph, list(flatten([x.__dask_keys__() for x in arrays]))))


# Graphs of any calls ----------------------------------------------------------------------

SHAPE = 3, 4
NBYTES = 96


def sizes_of(tasks: dict[Any, Any]) -> Sizes:
    """Return sizes by which each chunk is of numbers of eight bytes, or of one for conditions."""
    sizes = Sizes({})
    for name, *_ in tasks:
        sizes.add(name, 1 if name.startswith("less") else 8, SHAPE)
    sizes.largest = NBYTES
    return sizes


def changed(nodes: list[Any], wanted: list[Any]) -> dict[Any, Any]:
    """Return the tasks that are left, having checked that results are the same, bit by bit."""
    tasks = {node.key: node for node in nodes}
    found = merged(Table(tasks, wanted, sizes_of(tasks)), 1).tasks
    for one, other in zip(dask.get(tasks, wanted), dask.get(found, wanted), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    return found


def data(name: str, seed: int = 0) -> DataNode:
    return DataNode((name, 0), np.random.default_rng(seed).uniform(-1, 1, SHAPE))


def call(name: str, function: Any, *args: Any, **kwargs: Any) -> Task:
    """Return a task of one block; names among its arguments are those of other chunks."""
    given = [TaskRef((a, 0)) if isinstance(a, str) else a for a in args]
    return Task((name, 0), function, *given, **kwargs)


def reduced(name: str, of: str, function: Any = chunk.sum) -> Task:
    return call(name, function, of, axis=(0,), keepdims=True)


def sorted_rows(x: Any) -> Any:
    return np.sort(x, axis=1)


def test_chunks_of_two_others_that_dask_lets_go_of_are_made_once() -> None:
    """Both would be kept until the last reader has read them, where one chunk is kept now."""
    made = [call(name, sorted_rows, name[:1]) for name in ("as", "bs")]
    readers = [reduced("first", "both"), call("between", operator.neg, "first"),
               call("last", operator.add, "both", "between")]  # fmt: skip
    nodes = [data("a"), data("b", 1), *made, call("both", operator.sub, "as", "bs"), *readers]
    assert ("both", 0) in changed(nodes, [("last", 0)])
    # One of them is there to the end anyway.
    nodes[4] = call("both", operator.sub, "as", "b")
    assert ("both", 0) not in changed(nodes, [("last", 0)])
    # A condition is less than what it is made of.
    nodes[4] = call("less", operator.lt, "as", "b")
    nodes[5:] = [reduced("first", "less"), call("between", operator.neg, "first"),
                 call("last", operator.add, "less", "between")]  # fmt: skip
    assert ("less", 0) in changed(nodes, [("last", 0)])


def test_results_stay_results() -> None:
    nodes = [data("a"), call("b", operator.add, "a", 1), reduced("sum", "b"), reduced("max", "b")]
    assert ("b", 0) not in changed(nodes, [("sum", 0), ("max", 0)])
    assert ("b", 0) in changed(nodes, [("b", 0), ("sum", 0), ("max", 0)])


CALLS: list[Any] = [
    lambda name, a, b: call(name, operator.add, a, b),
    lambda name, a, b: call(name, operator.sub, a, b),
    lambda name, a, b: call(name, np.multiply, a, b),
    lambda name, a, b: call(name, np.where, Task(None, operator.lt, TaskRef((a, 0)), 0), a, b),
    lambda name, a, b: call(name, np.clip, a, -0.5, 0.5),
    lambda name, a, b: call(name, chunk.astype, a, astype_dtype=np.dtype("f4")),
    lambda name, a, b: call(name, np.exp, a),
    lambda name, a, b: call(name, operator.truediv, a, 3),
    lambda name, a, b: call(name, operator.sub, a, Task(None, np.negative, TaskRef((b, 0)))),
    lambda name, a, b: call(name, sorted_rows, a),
    lambda name, a, b: Task.fuse(call(f"{name}-in", operator.add, a, 2),
                                 call(name, operator.mul, f"{name}-in", b), key=(name, 0)),
    lambda name, a, b: reduced(name, a),
    lambda name, a, b: reduced(name, a, chunk.max),
    lambda name, a, b: Task.fuse(call(f"{name}-in", operator.mul, a, b),
                                 reduced(name, f"{name}-in"), key=(name, 0)),
]  # fmt: skip


@given(st.data())
def test_any_graph_gives_what_it_gave(drawn: st.DataObject) -> None:
    names = ["a", "b"]
    nodes: list[Any] = [data("a"), data("b", 1)]
    for k in range(drawn.draw(st.integers(3, 14))):
        make = drawn.draw(st.sampled_from(CALLS))
        pair = [drawn.draw(st.sampled_from(names)) for _ in range(2)]
        nodes.append(make(f"t{k}", *pair))
        names.append(f"t{k}")
    wanted = drawn.draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    tasks = {node.key: node for node in nodes}
    # As dask gives graphs: without tasks that nothing needs.
    needed, waiting = set(), [(name, 0) for name in wanted]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting += tasks[key].dependencies
    left = changed([n for n in nodes if n.key in needed], [(name, 0) for name in wanted])
    assert uses(left).keys() <= left.keys()
