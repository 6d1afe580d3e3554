"""One task cuts all small pieces of a large chunk: tasks are counted, values compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, Task, TaskRef
from dask.distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.graph import disable, enable
from gpusched.graph.functions.known import pieces
from gpusched.graph.passes.chains import without_names
from gpusched.graph.passes.cutting import lengths_of_piece
from gpusched.graph.passes.table import Table

SETTINGS = {"gpusched.batching.chunk-bytes": 1000, "gpusched.fusion.strict": True}
SIDE, CHUNK = 60, 20


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with dask.config.set(SETTINGS), enable():
        yield


def plane(dtype: str = "f8") -> Any:
    """Return an array of nine large chunks that tasks make."""
    values = np.random.default_rng(2).integers(0, 99, (SIDE, SIDE)).astype(dtype)
    return da.from_array(values, chunks=CHUNK).map_blocks(np.copy)


def spread(chunk: Any) -> Any:
    around = chunk[:-2, 1:-1] + chunk[2:, 1:-1] + chunk[1:-1, :-2] + chunk[1:-1, 2:]
    return chunk[1:-1, 1:-1] + 0.2 * (around - 4 * chunk[1:-1, 1:-1])


def heat(x: Any, steps: int = 2, boundary: Any = "nearest") -> Any:
    for _ in range(steps):
        x = da.map_overlap(spread, x, depth=1, boundary=boundary, trim=False, dtype=x.dtype,
                           chunks=x.chunks, meta=x._meta)  # fmt: skip
    return x


def tasks_of(array: Any) -> dict[Any, Any]:
    """Return what runs, but data."""
    (found,) = dask.optimize(array)
    nodes = dict(found.dask)
    return {key: node for key, node in nodes.items() if isinstance(node, Task | Alias)}


def cutting(tasks: dict[Any, Any]) -> list[Any]:
    return [key for key, node in tasks.items() if getattr(node, "func", None) is pieces]


def users(tasks: dict[Any, Any], key: Any) -> list[Any]:
    return [other for other, node in tasks.items() if key in node.dependencies]


def check(array: Any, scheduler: str = "sync") -> None:
    found = array.compute(scheduler=scheduler)
    with disable():
        plain = array.compute(scheduler="sync")
    np.testing.assert_allclose(found, plain, rtol=1e-12)


@pytest.mark.parametrize("boundary", ["nearest", "reflect", "periodic", 0])
def test_a_step_has_a_task_for_all_edges_of_a_chunk(boundary: Any) -> None:
    result = heat(plane(), boundary=boundary)
    with disable():
        plain = len(tasks_of(result))
    tasks = tasks_of(result)
    assert len(cutting(tasks)) == 18
    assert len(tasks) < plain / 4
    check(result)
    check(result, "threads")


@pytest.mark.processes
def test_workers_compute_it_too() -> None:
    with gpusched.Cluster(2, 1, gpus=0) as cluster, Client(cluster):
        result = heat(plane())
        found = result.compute()
    with disable():
        np.testing.assert_allclose(found, result.compute(scheduler="sync"), rtol=1e-12)


def test_pieces_that_are_asked_for_are_tasks_of_their_own() -> None:
    x = plane()
    edge, corner = x[:CHUNK, :1], x[:1, :1]
    both = dask.optimize(edge, corner, edge + 1)
    assert all(key in dict(both[0].dask) for key in edge.__dask_keys__()[0])
    for one, other in zip(dask.compute(edge, corner, edge + 1), (edge, corner, edge + 1),
                          strict=True):  # fmt: skip
        with disable():
            np.testing.assert_array_equal(one, other.compute())


def test_large_pieces_stay_apart() -> None:
    x = plane()
    halves = [x[:, place : place + 10].map_blocks(np.sort) for place in range(0, SIDE, 10)]
    assert not cutting(tasks_of(da.concatenate(halves, axis=1)))


def test_pieces_keep_no_large_chunk_alive() -> None:
    chunk = np.ones((40, 40))
    cut, kept = pieces(chunk, (((getitem, slice(1)),), ((getitem, slice(1, None)),)))
    assert cut.base is None and kept.base is chunk


def test_pieces_that_stay_until_the_end_stay_apart() -> None:
    x, edges = plane(), []
    for _ in range(2):
        x = heat(x, 1)
        edges.append(x[:1])
    rows = da.concatenate(edges)
    tasks = tasks_of(rows)
    kept = {node.target for node in tasks.values() if isinstance(node, Alias)}
    assert kept and cutting(tasks)
    assert kept.isdisjoint(other for key in cutting(tasks) for other in users(tasks, key))
    check(rows)


@dataclass
class Scaled:
    """Cannot be hashed."""

    factor: float

    def __call__(self, chunk: Any) -> Any:
        return chunk * self.factor


def test_functions_that_cannot_be_hashed() -> None:
    x = plane().map_blocks(Scaled(2.0), dtype="f8")
    check(heat(x))
    check(plane().rechunk(30).map_blocks(Scaled(2.0), dtype="f8").rechunk(20).sum())


def test_chunks_that_are_not_large_are_left_alone() -> None:
    with dask.config.set({"gpusched.batching.chunk-bytes": 10_000, "gpusched.batching.tasks": 0}):
        assert not cutting(tasks_of(heat(plane())))


def test_null_switches_it_off() -> None:
    with dask.config.set({"gpusched.fusion.merge-bytes": None}):
        assert not cutting(tasks_of(heat(plane())))


def test_annotated_graphs_are_left_alone() -> None:
    with dask.annotate(priority=3):
        result = heat(plane())
    assert not cutting(tasks_of(result))


def test_the_same_program_has_the_same_tasks() -> None:
    names = [sorted(map(str, tasks_of(heat(plane())))) for _ in range(2)]
    assert names[0] == names[1]


def test_explain_knows_them() -> None:
    told = gpusched.explain(heat(plane()))
    assert told.totals.tasks_after == sum(
        isinstance(node, Task) for node in tasks_of(heat(plane())).values()
    )
    cut = [stage for stage in told.stages if stage.name.startswith("pieces-")]
    # Of the middle, four sides and four corners, twice.
    assert len(cut) == 18 and all(stage.peak_exact for stage in cut)


INDEX = st.slices(30) | st.integers(-3, 2)


@given(st.tuples(INDEX, INDEX), st.integers(8, 30), st.integers(8, 30), st.integers(0, 5))
def test_no_piece_is_larger_than_told(index: Any, rows: int, columns: int, less: int) -> None:
    """Chunks may be smaller than the largest one."""
    chunk = np.empty((rows - less, columns))
    lengths = lengths_of_piece(index, (rows, columns))
    found = chunk[index].shape
    assert len(found) == len(lengths)
    assert all(one <= other for one, other in zip(found, lengths, strict=True))


@pytest.mark.parametrize(
    ("index", "length"),
    [
        (slice(None), 100),
        (slice(0, 2), 2),
        (slice(-2, None), 2),
        (slice(-1, -2, -1), 1),
        (slice(3, None, -1), 4),
        (slice(-5, -2), 3),
        (slice(-5, 3), 100),
        (slice(7, 3), 0),
        (slice(None, None, -1), 100),
    ],
)
def test_lengths_of_pieces(index: slice, length: int) -> None:
    assert lengths_of_piece((index,), (100,)) == (length,)


def graph_of(*nodes: Any) -> dict[Any, Any]:
    return {node.key: node for node in nodes}


def test_a_fused_task_has_the_name_of_its_result() -> None:
    first, last = Task(("a", 0), abs, -3), Task(("b", 0), abs, TaskRef(("a", 0)))
    fused = Task.fuse(first, last, key=("a-b", 0))
    tasks = graph_of(fused, Alias(("b", 0), ("a-b", 0)), Task("c", abs, TaskRef(("b", 0))))
    found = without_names(Table(tasks, ["c"])).tasks
    assert set(found) == {("b", 0), "c"} and found["c"].dependencies == {("b", 0)}
    assert found["b", 0].key == ("b", 0) and found["b", 0]({}) == 3


def test_names_that_are_asked_for_stay() -> None:
    tasks = graph_of(Task("a", abs, -3), Alias("b", "a"), Alias("c", "b"))
    found = without_names(Table(tasks, ["a", "c"])).tasks
    assert set(found) == {"a", "c"} and found["c"].target == "a"


@pytest.mark.parametrize("backwards", [False, True])
def test_many_names_of_one_task(backwards: bool) -> None:
    names = [Alias(k + 1, k) for k in range(20_000)]
    tasks = graph_of(Task(0, abs, -3), *(names[::-1] if backwards else names),
                     Task("a", abs, TaskRef(20_000)))  # fmt: skip
    found = without_names(Table(tasks, ["a"])).tasks
    assert set(found) == {0, "a"} and found["a"].dependencies == {0}


def test_a_name_of_itself_is_refused() -> None:
    tasks = graph_of(Alias("a", "b"), Alias("b", "a"), Task("c", abs, TaskRef("a")))
    with pytest.raises(ValueError, match="'a' is another name of itself"):
        without_names(Table(tasks, ["c"]))


def test_names_of_what_a_cluster_keeps() -> None:
    tasks = graph_of(Alias("b", "kept"), Task("c", abs, TaskRef("b")), Alias("d", "kept"))
    found = without_names(Table(tasks, ["c", "d"])).tasks
    assert set(found) == {"c", "d"}
    assert Counter(k for node in found.values() for k in node.dependencies) == {"kept": 2}
