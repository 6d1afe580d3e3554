"""Tasks that take small pieces of large chunks are batched: chunk by chunk, with the same results.

Anomalies are such tasks: dask cuts the days of a year as small as what is taken of the means.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import flatten
from hypothesis import given
from hypothesis import strategies as st

from gpusched.adapters.tasks import DataNode, List, Task, TaskRef, execute_subgraph
from gpusched.graph import disable, enable
from gpusched.graph.passes.cutting import cut_off
from gpusched.graph.passes.grouping import Grouping, Limits
from gpusched.graph.passes.sizes import Sizes
from tests.graph.test_batching import check, graph_of, plain_tasks, tasks

WIDTH = 4
DAY = WIDTH * 8
"""Bytes."""

SETTINGS = {
    "gpusched.batching.least": 2,
    "gpusched.batching.tasks": 64,
    "gpusched.batching.chunk-bytes": 12 * DAY,
    "gpusched.fusion.strict": True,
}


@pytest.fixture(autouse=True)
def small_batches() -> Iterator[None]:
    with dask.config.set(SETTINGS):
        yield


RANDOM = np.random.default_rng(0)


def field(days: int, chunk: int) -> Any:
    """Return random numbers by day and place, in large chunks."""
    return da.from_array(RANDOM.normal(size=(days, WIDTH)), chunks=(chunk, WIDTH))


def means(chunk: int = 12) -> Any:
    return da.from_array(RANDOM.normal(size=(12, WIDTH)), chunks=(chunk, WIDTH))


class TestCounts:
    @pytest.mark.parametrize("chunk", [12, pytest.param(1, marks=pytest.mark.slow)])
    def test_anomalies_are_a_few_tasks_for_each_large_chunk(self, chunk: int) -> None:
        months = np.arange(360) // 10 % 12
        y = field(360, 60) - means(chunk)[months]
        pieces = y.numblocks[0]
        assert pieces >= 30
        assert tasks(y) < pieces / 2 + 12
        check(y)

    def test_a_batch_takes_pieces_of_one_large_chunk(self) -> None:
        x = field(360, 60)
        large = set(flatten(x.__dask_keys__()))
        graph = graph_of(x - means(1)[np.arange(360) // 10 % 12])
        taken = [large & set(node.dependencies) for node in graph.values()]
        assert max(map(len, taken)) == 1
        assert 6 <= sum(map(len, taken)) < 12

    def test_a_task_that_reads_all_of_a_large_chunk_is_not_batched(self) -> None:
        x = field(360, 60)
        pieces = x.rechunk((10, WIDTH))
        assert tasks(pieces + 1) < plain_tasks(pieces + 1)
        whole = da.map_blocks(lambda a, s: a + s.sum(), pieces, x.sum(), dtype="f8")
        check(whole)
        assert tasks(x + 1) == plain_tasks(x + 1)


KEPT = st.sampled_from(["no", "large", "small"])


@st.composite
def anomalies(draw: Any) -> Any:
    """Build anomalies, and what is made of them, by random labels and in random chunks."""
    days = draw(st.integers(20, 60))
    kind = draw(st.sampled_from(["sorted", "runs", "any"]))
    labels = np.array(draw(st.lists(st.integers(-12, 11), min_size=days, max_size=days)))
    labels = np.sort(labels) if kind == "sorted" else labels
    labels = np.repeat(labels, 4)[:days] if kind == "runs" else labels
    x, m = field(days, draw(st.integers(10, 40))), means(draw(st.integers(1, 12)))
    kept = draw(KEPT)
    if kept == "large":
        x = x.persist(scheduler="sync")
    m = m.persist(scheduler="sync") if kept == "small" else m
    x = x * 2 if draw(st.booleans()) else x
    y = x - m[labels]
    again = m[labels] + 1
    return draw(
        st.sampled_from(
            [
                y,
                y * again,
                y + y.mean(axis=0),
                (y**2).sum(axis=0),
                da.stack([y, y + 1]),
                y[::-1] + y,
                y.rechunk((7, 2)) * 2,
                da.concatenate([y, x.rechunk((5, WIDTH)) - 1]),
            ]
        )
    )


@pytest.mark.slow
@given(anomalies(), st.integers(1, 6), st.integers(2, 20), st.sampled_from([3, 12]))
def test_anomalies_have_the_same_values_and_keys(array: Any, least: int, most: int,
                                                 days: int) -> None:  # fmt: skip
    chosen = {"least": least, "tasks": most, "chunk-bytes": days * DAY}
    with dask.config.set({f"gpusched.batching.{k}": v for k, v in chosen.items()}):
        check(array)


@pytest.mark.slow
@given(anomalies(), anomalies())
def test_several_results_at_once(first: Any, second: Any) -> None:
    wanted = [first, second, first.sum(), first.blocks[0]]
    with disable():
        expected = dask.compute(*wanted, scheduler="sync")
    with enable():
        found = dask.compute(*wanted, scheduler="sync")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


@given(st.data())
def test_groups_with_pieces_form_no_cycle(data: Any) -> None:
    count = data.draw(st.integers(1, 40))
    operands = {
        k: data.draw(st.lists(st.integers(0, k - 1), max_size=4, unique=True)) if k else []
        for k in range(count)
    }
    large = data.draw(st.sets(st.integers(0, count - 1)))
    sizes = {k: 1000 if k in large else 8 for k in operands}
    pieces = {k: {o: 4 for o in found if o in large} for k, found in operands.items()}
    pieces = {k: found for k, found in pieces.items() if found}
    tiny = data.draw(st.sets(st.integers(0, count - 1))) - large
    groups = Grouping(operands, sizes, pieces, tiny, set(), Limits(8, 200, 8, 1)).run()
    assert sorted(key for group in groups for key in group.members) == list(operands)
    number = {key: k for k, group in enumerate(groups) for key in group.members}
    for key, needed in operands.items():
        assert all(number[other] <= number[key] for other in needed)
    for group in groups:
        taken = {other for key in group.members for other in pieces.get(key, ())}
        some = pieces.get(group.members[0], {}).keys()
        assert len(group.members) == 1 or set(group.members) <= tiny
        assert taken == set(some) or group.level > 0
        assert group.nbytes <= 200


class TestCutOff:
    def test_pieces_of_one_chunk_add_up(self) -> None:
        inside = {
            "a": Task("a", getitem, TaskRef("x"), slice(2)),
            "b": Task("b", getitem, TaskRef("x"), (slice(1, 4), slice(None))),
            "c": Task("c", np.add.outer, TaskRef("a"), TaskRef("b")),
        }
        task = Task("c", execute_subgraph, inside, "c", ("x",), TaskRef("x"))
        assert cut_off(task, "x", 8, (100, 3)) == 8 * (2 + 3) * 3

    def test_pieces_of_pieces(self) -> None:
        inside = {
            "a": Task("a", getitem, TaskRef("x"), slice(2, 12)),
            "b": Task("b", getitem, TaskRef("a"), slice(1, 4)),
        }
        task = Task("b", execute_subgraph, inside, "b", ("x",), TaskRef("x"))
        assert cut_off(task, "x", 8, (100, 3)) == 8 * 10 * 3

    @pytest.mark.parametrize(
        "task",
        [
            Task("a", np.add, TaskRef("x"), 1),
            Task("a", np.add, TaskRef("x"), TaskRef("y")),
            Task("a", getitem, TaskRef("y"), slice(2)),
            Task("a", getitem, TaskRef("x"), TaskRef("y")),
            Task("a", getitem, TaskRef("x"), (slice(2), slice(2), slice(2))),
            Task("a", np.concatenate, List(TaskRef("x"), TaskRef("y"))),
            Task("c", execute_subgraph, {"a": Task("a", getitem, TaskRef("x"), slice(2)),
                                         "c": Task("c", np.add, TaskRef("a"), TaskRef("x"))},
                 "c", ("x",), TaskRef("x")),
            Task("a", execute_subgraph, {"a": Task("a", getitem, TaskRef("p"), slice(2))},
                 "a", ("p",), List(TaskRef("x"))),
        ],
    )  # fmt: skip
    def test_what_may_read_more_than_pieces(self, task: Task) -> None:
        assert cut_off(task, "x", 8, (100, 3)) is None


def test_an_index_with_arrays_has_a_size() -> None:
    labels = np.arange(5)
    assert Sizes({}).of(DataNode("i", (1, (labels, slice(None))))) == labels.nbytes
    assert Sizes({}).of(DataNode("i", (1, [labels]))) is None
    assert Sizes({}).of(DataNode("i", ("text", labels))) is None
