"""Chunks stay whole whose pieces are reduced along the axis along which dask has cut them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.tasks import Task
from gpusched.graph.passes import reductiontrees, table, unsplitting
from gpusched.graph.passes.chains import without_links
from gpusched.graph.passes.reducefirst import reduced_first
from gpusched.graph.passes.table import Table
from gpusched.graph.passes.unsplitting import unsplit
from tests.benchmarks.programs import tasks_of
from tests.graph.passes import assert_same_results, table_of

VALUES = np.random.default_rng(0).integers(-9, 9, (24, 6)).astype("f8")
"""Integers, whose sums are the same in any order."""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsplitting, "threads", lambda: 1)


def count(table: Table) -> int:
    """Return how many tasks there are."""
    return sum(type(node) is Task for node in without_links(table).tasks.values())


def fewer(*arrays: Any) -> int:
    """Return how many tasks fewer there are, having checked that the results are the same."""
    before = table_of(*arrays)
    after = unsplit(before)
    assert_same_results(before, after)
    return count(before) - count(after)


def pieces_of(values: Any = VALUES, chunks: Any = (12, 6), small: Any = (2, 6)) -> Any:
    """Return what is computed of pieces."""
    return da.from_array(values, chunks=chunks).rechunk(small) * 2


ONE_TASK = lambda x: x.sum(axis=0, split_every=100)  # noqa: E731
REDUCTIONS = [
    ONE_TASK, lambda x: x.sum(axis=0), lambda x: x.prod(axis=0), lambda x: x.min(axis=0),
    lambda x: x.max(axis=0, keepdims=True), lambda x: (x > 0).any(axis=0), lambda x: x.mean(axis=0),
    lambda x: x.var(axis=0), lambda x: da.nanmean(x, axis=0), lambda x: da.nanmax(x, axis=0),
    lambda x: x.sum(), lambda x: x.mean(axis=(0, 1)), lambda x: x.sum(axis=0, split_every=2),
    lambda x: x.mean(axis=0) + 1,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
def test_pieces_that_are_reduced(number: int) -> None:
    assert fewer(REDUCTIONS[number](pieces_of())) >= 10
    # Of a row of chunks, some of which are not cut alike.
    assert fewer(REDUCTIONS[number](pieces_of(chunks=((10, 14), 6)))) >= 10


def test_pieces_that_several_reductions_reduce() -> None:
    x, y = (da.from_array(each, chunks=(12, 6)).rechunk((2, 6)) for each in (VALUES, VALUES * 3))
    z = x - y
    assert fewer(z.mean(axis=0), z.max(axis=0), (z + 1).sum(axis=0)) >= 24


def test_pieces_that_nothing_is_computed_with_before_they_are_reduced() -> None:
    x = da.from_array(VALUES, chunks=(12, 6)) + 1
    assert fewer(x.rechunk((2, 6)).sum(axis=0)) >= 10
    assert fewer(x.rechunk((4, 3)).sum(axis=(0, 1))) >= 10


def test_some_reductions_need_pieces_and_others_do_not() -> None:
    x = pieces_of()
    needed = x.map_blocks(lambda b: b - b.mean(), dtype=x.dtype).sum(axis=0)
    found = fewer(needed, pieces_of(VALUES + 1).sum(axis=0))
    assert found >= 10


@pytest.mark.parametrize(("days", "tasks"), [(365, 20), (100, 60), (50, 150)])
def test_days_without_the_mean_of_their_month(days: int, tasks: int) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("flox")
    times = np.datetime64("2001-01-01") + np.arange(2 * 365)
    values = np.random.default_rng(0).uniform(280, 300, (len(times), 20, 20))
    x = xr.DataArray(da.from_array(values, chunks=(days, 20, 20)), dims=("time", "y", "x"),
                     coords={"time": times})  # fmt: skip
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "off"}):
        groups = x.groupby("time.month")
        found = ((groups - groups.mean()) ** 2).mean("time").data
        assert tasks_of(found) < tasks
        ours = found.compute(scheduler="threads")
    with gpusched.disable():
        np.testing.assert_allclose(ours, found.compute(scheduler="threads"), rtol=1e-12)


@pytest.mark.parametrize("of", [
    lambda x: x.sum(axis=1).sum(axis=0) + x.sum(axis=(0, 1)),  # Pieces that others need, too.
    lambda x: da.reduction(x, chunk.sum, np.max, axis=0, dtype=x.dtype),
    lambda x: da.reduction(x, chunk.sum, lambda p, axis, keepdims: p.mean(axis=axis), axis=0,
                           dtype=x.dtype),
    lambda x: x.map_blocks(np.cumsum, axis=0, dtype=x.dtype).sum(axis=0),
    lambda x: x.argmax(axis=0),
    lambda x: da.median(x, axis=1).map_blocks(np.sort).sum(axis=0),
    lambda x: x.map_blocks(lambda b: b - b.mean(), dtype=x.dtype).sum(axis=0),
])  # fmt: skip
def test_what_needs_pieces_gets_them(of: Any) -> None:
    assert fewer(of(pieces_of())) == 0


def test_pieces_that_are_taken_twice_are_reduced_twice() -> None:
    x = pieces_of()
    assert fewer(da.concatenate([x, x], axis=0).sum(axis=0)) == 0
    fewer(da.concatenate([x, x + 1], axis=0).sum(axis=0))


def test_first_steps_that_are_results_stay() -> None:
    x = pieces_of()
    first = x.map_blocks(chunk.sum, axis=(0,), keepdims=True, dtype=x.dtype, chunks=(1, 6))
    assert fewer(first) == 0
    assert fewer(x, x.sum(axis=0)) == 0


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
def test_pieces_of_many_chunks_stay_where_dask_joins_results_by_a_tree(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(unsplitting, "MOST", 2)
    x = pieces_of(chunks=(4, 6), small=(1, 6))
    joined = fewer(REDUCTIONS[number](x)) > 0
    assert joined is (number == REDUCTIONS.index(ONE_TASK))


def test_nothing_is_taken_apart_where_pieces_are_joined_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = da.from_array(np.ones((40, 3)), chunks=(4, 3)) + 1
    before = table_of((x.rechunk((6, 3)) * 2).sum(axis=0))
    monkeypatch.setattr(table, "flattened", lambda node: pytest.fail("taken apart"))
    assert count(unsplit(before)) == count(before)


@pytest.mark.parametrize("of", [
    lambda x: (x.rechunk((12, 2)) * 2).sum(axis=0), lambda x: x.rechunk((12, 2)).mean(axis=0) + 1,
    lambda x: da.lib.stride_tricks.sliding_window_view(x, 3, axis=0).sum(axis=2),
    lambda x: (x.rechunk((12, 2)) * 2)[:, 1:].max(axis=0),
])  # fmt: skip
def test_nothing_is_taken_apart_where_chunks_are_cut_along_other_axes(
    monkeypatch: pytest.MonkeyPatch, of: Any
) -> None:
    before = table_of(of(da.from_array(VALUES, chunks=(12, 6)) + 1))
    monkeypatch.setattr(
        reductiontrees, "parted", lambda *args, **options: pytest.fail("taken apart")
    )
    assert_same_results(before, unsplit(before))


@given(st.data())
def test_any_pieces_and_steps(drawn: st.DataObject) -> None:
    draw = drawn.draw
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(2, 12)) for _ in range(ndim))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-3, 4, shape)
    values = values.astype(draw(st.sampled_from(["f8", "f4", "i4", "c16", "f2"])))
    chunks = tuple(draw(st.integers(max(1, n // 2), n)) for n in shape)
    axis = draw(st.integers(0, ndim - 1))
    fine = {axis: draw(st.integers(1, 3))}
    x = da.from_array(values, chunks=chunks).rechunk(fine)
    for _ in range(draw(st.integers(0, 2))):
        x = draw(st.sampled_from([
            lambda a: a * 2, abs, lambda a: a + a, lambda a: a - da.from_array(values, chunks=2),
            lambda a: a.rechunk(fine), lambda a: da.concatenate([a, a], axis=axis),
            lambda a: a + np.arange(a.shape[-1]),
            lambda a: a[(slice(None),) * axis + (slice(1, None),)] if a.shape[axis] > 1 else a,
        ]))(x)  # fmt: skip
        if x.shape != shape:
            break
    axes = draw(st.sampled_from([None, axis, 0, tuple(range(ndim))]))
    every = draw(st.sampled_from([None, 2, 3, 16]))
    names = ["sum", "any", "mean", "var", "prod"]
    with np.errstate(all="ignore"):
        kinds = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        found = [getattr(x, name)(axis=axes, split_every=every) for name in kinds]
        if values.dtype != "f2":
            fewer(*found)


def test_each_task_is_taken_apart_once_and_joins_are_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[tuple[str, int]] = Counter()
    kept = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def count(node: Any) -> Any:
            asked[name, id(node)] += 1
            kept.append(node)
            return function(node)

        monkeypatch.setattr(module, name, count)

    counted(table, "flattened")
    counted(unsplitting, "_chunks_of")
    x = da.from_array(np.ones((480, 6)), chunks=(60, 6)).rechunk((10, 6))
    reduced_first(unsplit(table_of(((x * 2 + 1) ** 2).sum(axis=0))), 1)
    assert {name for name, _ in asked} == {"flattened", "_chunks_of"}
    assert set(asked.values()) == {1}


def test_pieces_that_dask_fuses_with_what_is_computed_of_them() -> None:
    """No task does nothing but cut then."""
    values = np.arange(6 * 12500 * 4.0).reshape(-1, 4)
    x = da.from_array(values, chunks=(12500, 4)) + 0
    total = (x.rechunk({0: 625}) * 2 + 1).sum(axis=0)
    with gpusched.disable():
        plain = tasks_of(total)
    with gpusched.enable():
        assert tasks_of(total) < plain / 10
        np.testing.assert_allclose(total.compute(), (values * 2 + 1).sum(axis=0))
