"""Pieces of chunks that are computed with alike: the chunks stay whole, and values are the same."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk, reductions
from dask.array.core import concatenate3, concatenate_shaped, finalize
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import gpusched
from gpusched.adapters.arrays import concatenate2, enforce_dtype, sqrt
from gpusched.adapters.tasks import Alias, DataNode, List, Task, TaskRef, identity_cast
from gpusched.graph.functions.independence import Divided, results
from gpusched.graph.passes import unsplitting
from gpusched.graph.passes.sizes import Sized, Sizes
from gpusched.graph.passes.table import Table
from gpusched.graph.passes.unsplitting import unsplit
from tests.benchmarks.programs import tasks_of

VALUES = np.random.default_rng(0).integers(0, 99, (12, 8, 10)).astype("f8")


pytestmark = pytest.mark.usefixtures("plain_calls")


def compared(array: Any, same: Any = np.testing.assert_array_equal) -> tuple[int, int]:
    """Return the tasks of dask and of gpusched, whose values are the same."""
    with gpusched.disable():
        plain, expected = tasks_of(array), array.compute()
    with gpusched.enable():
        found = array.compute()
        same(found, expected)
        return plain, tasks_of(array)


def assert_few_tasks(array: Any) -> None:
    """Assert that windows stay in no pieces."""
    plain, ours = compared(array, partial(np.testing.assert_allclose, rtol=1e-12))
    assert plain >= 100
    assert ours < 30


def pieces(chunks: Any = (3, 2, 5)) -> Any:
    x = da.from_array(VALUES, chunks=(3, 8, 10))
    return x, (x - 1).rechunk(chunks)


def test_what_goes_with_each_piece_goes_with_the_chunk() -> None:
    x, y = pieces()
    plain, ours = compared(da.where(y > 5, y * 2, x.rechunk((3, 2, 5)) + y))
    assert plain > 64
    assert ours <= 3 * 4 + 1


@pytest.mark.parametrize("form", [TaskRef, partial(Alias, None)])
@pytest.mark.parametrize("join", [finalize, concatenate3])
def test_each_form_of_a_join(join: Any, form: Any) -> None:
    chunks = [DataNode("x", VALUES[:4, 0, 0]), DataNode("y", VALUES[:4, 1, 0])]
    cut = [Task((f"{name}-cut", k), operator.getitem, TaskRef(name), (slice(2 * k, 2 * k + 2),))
           for name in "xy" for k in (0, 1)]  # fmt: skip
    twice = [Task((f"{name}-2", k), enforce_dtype, TaskRef((f"{name}-cut", k)), 2,
                  enforce_dtype=np.dtype("f4"), enforce_dtype_function=operator.mul)
             for name in "xy" for k in (0, 1)]  # fmt: skip
    leaves = [form((f"{name}-2", k)) for name in "xy" for k in (0, 1)]
    for nested in (List(*leaves), Task(None, identity_cast, *leaves, typ=list)):
        nodes = [*chunks, *cut, *twice, Task("all", join, nested)]
        tasks = {node.key: node for node in nodes}
        found = unsplit(Table(dict(tasks), ["all"], Sizes({}))).tasks
        assert len(found) == 2 + 2 + 2 + 1
        np.testing.assert_array_equal(dask.get(found, "all"), dask.get(tasks, "all"))


ONE_ELEMENT: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda y: da.where(y > 5, y, da.zeros_like(y)),
    "two": lambda y: da.where(y > 5, da.full_like(y, 3, dtype="i4"), da.ones_like(y) * y),
    "of a row": lambda y: y - da.full_like(y.sum(axis=0), 2),
    "empty": lambda y: y + (da.empty_like(y) > np.inf),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_ELEMENT)
@pytest.mark.parametrize("chunks", [(3, 2, 5), (3, (3, 3, 2), 5), (3, (3, 3, 2), (3, 7))])
def test_zeros_of_pieces_are_zeros_of_chunks(name: str, chunks: Any) -> None:
    x, y = pieces(chunks)
    plain, ours = compared(ONE_ELEMENT[name](y + x.rechunk(y.chunks)))
    assert plain > 24
    assert ours <= 3 * 4 + 1


def test_zeros_as_long_as_chunks_are_noted_to_be_leave_shorter_ones_in_pieces() -> None:
    """Of a chunk of one day, dask raises an error where that is cut, and else adds it to all."""
    x = da.from_array(VALUES, chunks=(12, 8, 10))
    short = x.map_blocks(lambda days: days[:1], dtype="f8", meta=np.empty((0, 0, 0)))
    y = short.rechunk((4, 8, 10))
    with gpusched.enable(), pytest.raises(ValueError, match="broadcast"):
        (y * 2 + da.zeros_like(y)).compute()


def test_what_is_taken_for_each_piece_is_taken_for_the_chunk() -> None:
    x = da.from_array(np.repeat(VALUES, 2, axis=0), chunks=(8, 8, 10))
    means = da.from_array(VALUES[:3], chunks=-1).map_blocks(np.sqrt, dtype="f8")
    taken = means[np.arange(24) // 2 % 3]
    # What is taken is cut where chunks end.
    assert {3} <= set(taken.chunks[0])
    plain, ours = compared((x - taken) * 2)
    assert plain > 30
    assert ours == 1 + 3 + 1
    compared((x - da.flip(taken, 1)) * 2)


def test_chunks_that_may_be_shorter_than_noted_stay_in_pieces() -> None:
    """A chunk of one day would be broadcast to all days, where no piece of it can be."""
    x = da.from_array(np.repeat(VALUES, 2, axis=0), chunks=(8, 8, 10))
    short = x.map_blocks(lambda days: days[:1], dtype="f8", meta=np.empty((0, 0, 0)))
    taken = da.from_array(VALUES[:3], chunks=-1)[np.arange(24) // 2 % 3]
    with gpusched.enable(), pytest.raises(ValueError, match="broadcast"):
        ((short + 1 - taken) * 2).compute()


def test_a_function_among_the_arguments_of_another_may_be_a_user_s() -> None:
    for inner, sized in ((operator.neg, True), (lambda days: days[:1], False)):
        nested = Task("x", operator.add, Task(None, inner, TaskRef("a")), 1)
        assert Sized({"x": nested})(["x"]) is sized


def test_windows_of_pieces_are_windows_of_chunks() -> None:
    # There are larger chunks in the graph than those of all windows of a chunk.
    large = da.from_array(np.stack([VALUES] * 6, axis=3), chunks=(3, 8, 10, 6)).max(axis=3)
    pieces = large.rechunk((3, 2, 5))
    windows = da.lib.stride_tricks.sliding_window_view(pieces, 3, axis=0, automatic_rechunk=False)
    plain, ours = compared(windows.max(axis=3))
    assert plain > 90
    assert ours < 20


def windows_of(x: Any, length: int = 6) -> Any:
    """Return windows along the first axis, for fear of which dask cuts chunks into pieces."""
    return da.lib.stride_tricks.sliding_window_view(x, length, axis=0)


LARGER = np.random.default_rng(1).integers(0, 99, (128, 12, 12)).astype("f8")
LARGER[LARGER > 90] = np.nan
WEIGHTS = np.arange(1.0, 7)

OF_WINDOWS: dict[str, Callable[[Any], Any]] = {
    "max": lambda w: w.max(axis=3), "nanvar": lambda w: da.nanvar(w, axis=3),
    "std": lambda w: w.std(axis=3), "nanmean": lambda w: da.nanmean(w, axis=3) * 2,
    "weighted": lambda w: (w * WEIGHTS).sum(axis=3), "of number": lambda w: (w * 2).prod(axis=3),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_WINDOWS)
def test_windows_larger_than_chunks_are_in_no_pieces(name: str) -> None:
    assert_few_tasks(OF_WINDOWS[name](windows_of(da.from_array(LARGER, chunks=(32, 12, 12)))))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "std", "count"])
def test_reductions_of_windows_in_xarray_are_in_no_pieces(name: str) -> None:
    """Sums of what is no NaN have zeros of each piece's shape, and so have products."""
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(da.from_array(LARGER, chunks=(32, 12, 12)), dims=("time", "y", "x"))
    weights = xr.DataArray(WEIGHTS[:4], dims="window")
    windows = x.rolling(time=4).construct("window")
    assert_few_tasks(getattr(windows * weights, name)("window").data)


def test_windows_themselves_stay_in_pieces() -> None:
    windows = windows_of(da.from_array(LARGER, chunks=(32, 12, 12)))
    plain, ours = compared(windows * 2)
    assert plain >= 100
    assert ours > 40


@pytest.mark.parametrize("weights", [np.arange(12.0), np.arange(1.0, 13).reshape(1, 12, 1)])
def test_what_is_not_the_same_for_all_pieces_stays_in_pieces(weights: Any) -> None:
    x = da.from_array(VALUES[:, :4, :4], chunks=(6, 4, 4)).rechunk((6, 2, 2))
    array = x * da.from_array(weights[..., :4] if weights.ndim == 1 else weights[:, :4], chunks=-1)
    compared(array + 1)


def test_pieces_stay_where_one_user_takes_them_otherwise() -> None:
    _, y = pieces()
    z = y * 2 + 1
    both = da.concatenate([z, da.flip(z, 1)], axis=1)
    compared(both)
    _, ours = compared((z - z.mean(axis=1, keepdims=True)).sum(axis=(1, 2)))
    assert ours > 16


def test_pieces_that_are_asked_for_stay_pieces() -> None:
    _, y = pieces()
    with gpusched.enable():
        kept = (y * 2).persist()
    assert kept.chunks == y.chunks
    np.testing.assert_array_equal(kept.blocks[1, 2, 0].compute(), (VALUES[3:6, 4:6, :5] - 1) * 2)


def test_as_many_chunks_stay_as_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsplitting, "threads", lambda: 9)
    x, y = pieces()
    array = da.where(y > 5, y * 2, x.rechunk((3, 2, 5)) + y)
    # Eight chunks of 8 pieces of 240 bytes: of nine threads one would have nothing to do.
    with dask.config.set({"gpusched.batching.chunk-bytes": 3}):
        assert compared(array)[1] > 32
    with dask.config.set({"gpusched.batching.chunk-bytes": 4}):
        assert compared(array)[1] <= 3 * 4 + 1


OPERATIONS: list[Callable[[Any], Any]] = [
    lambda z: z + 1, lambda z: z.sum(axis=0), lambda z: z.max(axis=1), lambda z: z.mean(axis=2),
    lambda z: (z / 2).cumsum(axis=1), lambda z: z[1:, ::2], lambda z: z.rechunk((4, 8, 3)),
    lambda z: da.overlap.map_overlap(np.negative, z, depth={1: 1}, boundary="none"),
]  # fmt: skip


@pytest.mark.exhaustive
@given(st.sampled_from([3, 2]), st.sampled_from([2, 3, 4]), st.sampled_from([3, 5, 10]),
       st.sampled_from(OPERATIONS))  # fmt: skip
def test_values_whatever_the_pieces(
    days: int, rows: int, columns: int, operation: Callable[[Any], Any]
) -> None:
    x, y = pieces((days, rows, columns))
    compared(operation(da.maximum(y, x.rechunk(y.chunks) * 2)))


@pytest.mark.parametrize(
    ("task", "alone"),
    [
        (Task("y", operator.add, TaskRef("x"), TaskRef("x")), True),
        (Task("y", operator.add, TaskRef("x"), np.ones(4)), False),
        (Task("y", operator.add, TaskRef("x"), np.ones((4, 1))), True),
        (Task("y", operator.add, TaskRef("x"), np.ones((1, 1, 1))), False),
        (Task("y", concatenate_shaped, List(TaskRef("x"), np.ones((4, 4))), [2, 1]), False),
        (Task("y", reductions.moment_chunk, TaskRef("x"), axis=(0,), keepdims=True), True),
        (
            Task(
                "y",
                partial(reductions.moment_chunk, sum=np.cumsum),
                TaskRef("x"),
                axis=(0,),
                keepdims=True,
            ),
            False,
        ),
        (Task("y", sqrt, TaskRef("x")), True),
        (Task("y", operator.add, TaskRef("x"), TaskRef("other")), False),
        (Task("y", np.max, TaskRef("x"), axis=(0,), keepdims=True), True),
        (Task("y", np.max, TaskRef("x"), axis=(1,), keepdims=True), False),
        (Task("y", np.max, TaskRef("x"), axis=None, keepdims=True), False),
        (Task("y", np.max, TaskRef("x"), axis=(-1,), keepdims=True), False),
        (Task("y", sliding_window_view, TaskRef("x"), 3, 1), False),
        (Task("y", operator.getitem, TaskRef("x"), (slice(2),)), True),
        (Task("y", operator.getitem, TaskRef("x"), (slice(2), slice(1))), False),
        (Task("y", operator.getitem, TaskRef("x"), (0,)), False),
        (Task("y", np.sort, TaskRef("x")), False),
        (Task("y", np.where, TaskRef("x")), False),
        (Task("y", np.add, TaskRef("x"), 1, TaskRef("x")), False),
        (Task("y", np.clip, TaskRef("x"), 1, 2, TaskRef("x")), False),
        (Task("y", np.max, a=TaskRef("x"), axis=(0,)), False),
        (Task("y", np.max, List(TaskRef("x")), axis=(0,)), False),
        (Task("y", concatenate2, List(TaskRef("x")), axes=[0]), True),
        (Task("y", concatenate2, List(List(TaskRef("x"))), axes=[0]), False),
        (Task("y", concatenate_shaped, List(TaskRef("x"), TaskRef("x")), [2, 1]), True),
        (Task("y", concatenate_shaped, List(TaskRef("x"), TaskRef("x")), [1, 2]), False),
        (Task("y", concatenate_shaped, List(TaskRef("x")), [1, 1, 1]), False),
        (Task("y", chunk.astype, TaskRef("x"), astype_dtype=np.dtype(("f8", 2))), False),
        (
            Task(
                "y",
                enforce_dtype,
                TaskRef("x"),
                2,
                enforce_dtype=np.dtype("f4"),
                enforce_dtype_function=operator.mul,
            ),
            True,
        ),
        (
            Task(
                "y",
                enforce_dtype,
                TaskRef("x"),
                enforce_dtype=np.dtype("f4"),
                enforce_dtype_function=np.sort,
            ),
            False,
        ),
    ],
)
def test_what_is_independent(task: Task, alone: bool) -> None:
    assert (results(task, {"x": Divided(2, (1,))}) is not None) is alone
