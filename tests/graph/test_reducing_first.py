"""Chunks are reduced before they are joined where dask's steps take whatever results there are."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk, reductions
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.arrays import concatenate_arrays
from gpusched.adapters.tasks import Task, execute_subgraph
from gpusched.graph.functions.lonejoins import as_joined
from gpusched.graph.functions.reductionsteps import step_of
from gpusched.graph.passes import reducefirst
from gpusched.graph.passes.reducefirst import reduced_first
from gpusched.graph.subgraph import made_of
from tests.benchmarks.programs import tasks_of
from tests.graph.passes import assert_same_results, table_of

SHAPE = 40, 6
VALUES = np.random.default_rng(0).integers(-9, 9, SHAPE).astype("f8")
"""Integers, whose sums are the same in any order."""
ROWS = np.r_[0:7, 12:18, 21:35]


@pytest.fixture(autouse=True)
def _any_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducefirst, "LEFT", 0)


def joins(tasks: Any) -> int:
    """Return how many calls join what is taken."""
    found = 0
    for node in tasks.values():
        if type(node) is Task:
            inner = node.args[0].values() if node.func is execute_subgraph else [node]
            found += sum(getattr(each, "func", None) is concatenate_arrays for each in inner)
    return found


def changed(*arrays: Any, least: int = 0) -> bool:
    """Return whether chunks are reduced first, having checked that the results are the same."""
    before = table_of(*arrays)
    after = reduced_first(before, least)
    if after is before:
        return False
    assert_same_results(before, after)
    return True


def rows_of(values: Any = VALUES, rows: Any = ROWS, chunks: Any = (8, 6)) -> Any:
    return da.from_array(values, chunks=chunks)[rows].rechunk({0: -1})


REDUCTIONS = [
    lambda x: x.sum(axis=0), lambda x: x.prod(axis=0), lambda x: x.min(axis=0),
    lambda x: x.max(axis=0, keepdims=True), lambda x: (x > 0).any(axis=0),
    lambda x: (x > 0).all(axis=0), lambda x: x.mean(axis=0), lambda x: x.var(axis=0),
    lambda x: x.std(axis=0, ddof=1), lambda x: da.nansum(x, axis=0),
    lambda x: da.nanprod(x, axis=0), lambda x: da.nanmin(x, axis=0),
    lambda x: da.nanmax(x, axis=0), lambda x: da.nanmean(x, axis=0),
    lambda x: da.nanvar(x, axis=0), lambda x: da.moment(x, 3, axis=0), lambda x: x.sum(),
    lambda x: x.mean(axis=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
def test_reductions_of_what_is_taken(number: int) -> None:
    assert changed(REDUCTIONS[number](da.from_array(VALUES, chunks=(20, 6))[ROWS]))
    # Of what is joined to larger chunks, with something computed in between.
    assert changed(REDUCTIONS[number](abs(da.from_array(VALUES, chunks=(8, 6)).rechunk((40, 6)))))


@pytest.mark.parametrize(
    "first",
    [
        partial(np.sum, initial=10.0),
        partial(np.prod, initial=10.0),
        partial(np.sum, where=(np.arange(40) % 2 == 0)[:, None]),
    ],
)  # fmt: skip
def test_options_that_count_for_each_chunk(first: Any) -> None:
    joined = da.from_array(VALUES / 4, chunks=(8, 6)).rechunk({0: -1})
    assert not changed(da.reduction(joined, first, np.sum, axis=0, dtype="f8"))
    assert changed(da.reduction(joined, np.sum, np.sum, axis=0, dtype="f8"))
    assert not changed(joined.sum(axis=0, dtype="f2"))
    # Also where the steps after the first one have them.
    assert not changed(da.reduction(joined, np.sum, partial(np.sum, initial=1.0), axis=0,
                                    dtype="f8"))  # fmt: skip


def test_functions_of_somebody_s_in_dask_s_steps() -> None:
    def middle(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return np.median(x, axis=axis, keepdims=keepdims)

    steps = {"aggregate": reductions.mean_agg, "combine": reductions.mean_combine}
    for function, able in ((middle, False), (chunk.nansum, True)):
        first = partial(reductions.mean_chunk, sum=function)
        mean = da.reduction(rows_of(), first, axis=0, dtype="f8", concatenate=False, **steps)
        assert changed(mean) == able


class Percentages(np.ndarray):
    """An array of a type of its own, with operators of its own."""

    def __mul__(self, other: Any) -> Any:
        return np.asarray(self) * other / 100


def of_xarray(values: Any) -> Any:
    return pytest.importorskip("xarray").DataArray(values, dims=("y", "x"))


def of_pandas(values: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(values)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    "made",
    [np.matrix, np.ma.masked_invalid, lambda x: x.view(Percentages), of_xarray, of_pandas, abs],
)
def test_chunks_that_are_no_arrays_of_numpy_s_are_made_such_as_joins_make_them(
    made: Any, kept: bool
) -> None:
    pytest.importorskip("flox.dask")  # whose own functions keep sizes, where it is loaded
    values = VALUES.copy()
    values[3, 1] = np.nan
    x = da.from_array(values, chunks=(8, 6)).map_blocks(made, dtype="f8", meta=np.empty((0, 0)))
    if kept:
        x = x.persist(scheduler="sync")
    found = changed((x.rechunk((40, 6)) * 2).sum(axis=0))
    assert found or (made is of_pandas and kept)  # of which no length is known
    if made not in (np.matrix, of_xarray, of_pandas):  # rows of which dask takes and reduces
        assert changed((x[ROWS] * 2).sum(axis=0))


def test_nothing_is_asked_of_chunks_that_are_surely_arrays_of_numpy_s() -> None:
    def asks(x: Any) -> bool:
        tasks = reduced_first(table_of(x.rechunk({0: -1}).sum(axis=0)), 0).tasks
        calls = [each for node in tasks.values() for each in made_of(node)]
        return any(getattr(each, "func", None) is as_joined for each in calls)

    x = da.from_array(VALUES, chunks=(8, 6))
    drawn = da.random.default_rng(0).random(SHAPE, chunks=(8, 6))
    assert not asks(abs(x)) and not asks(x + drawn)
    assert asks(x.map_blocks(lambda b: b, dtype="f8"))


def test_objects_are_joined_in_their_order() -> None:
    letters = da.from_array(np.array(list("abcdefghijkl"), object), chunks=4)[[11, 0, 5, 2, 7]]
    assert not changed(letters.sum())


@pytest.mark.parametrize("name", ["min", "max", "nanmin", "nanmax", "sum"])
def test_chunks_that_are_empty_though_dask_does_not_know(name: str) -> None:
    x = da.from_array(VALUES, chunks=(8, 6))
    fewer = x.map_blocks(lambda b: b[b[:, 0] > 8], dtype="f8").rechunk({0: -1})
    assert changed(getattr(da, name)(fewer, axis=0)) == (name == "sum")


def test_each_chunk_is_read_by_one_task() -> None:
    values = np.random.default_rng(0).uniform(280, 300, size=(4 * 365, 50, 50))
    x = da.from_array(values, chunks=(365, 50, 50))
    months = np.arange(len(values)) // 30 % 12
    by_month = [x[np.flatnonzero(months == m)].mean(axis=0) for m in range(12)]
    found = da.stack(by_month)
    with gpusched.disable():
        plain = tasks_of(found)
        expected = found.compute()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.tier": "fused"}):
        # One for each chunk, one for each month, and the last one.
        assert tasks_of(found) == 4 + 12 + 1 < plain / 3
        gpusched.reset_statistics()
        np.testing.assert_allclose(found.compute(scheduler="threads"), expected, rtol=1e-12)
    counted = gpusched.statistics()
    assert counted.bytes_read <= values.nbytes + 48 * 8 * 31
    assert counted.bytes_written < values.nbytes / 8


@pytest.mark.parametrize("again", [
    lambda x: x,  # What is joined is a result.
    lambda x: x.sum(axis=1),  # Along another axis.
    lambda x: x.map_blocks(np.median, axis=0, keepdims=True, dtype=x.dtype),
    lambda x: x.map_blocks(np.cumsum, axis=0, dtype=x.dtype).sum(axis=0),  # Of what is before.
    lambda x: (x - np.arange(len(ROWS))[:, None]).sum(axis=0),  # By where elements are.
    lambda x: x.astype("f2").sum(axis=0),
    lambda x: da.reduction(x, chunk.sum, np.max, axis=0, dtype=x.dtype),
    lambda x: da.reduction(x, chunk.sum, lambda p, axis, keepdims: p.mean(axis=axis), axis=0,
                           dtype=x.dtype),
    lambda x: da.reduction(x, lambda p, axis, keepdims: p.std(axis=axis, keepdims=keepdims),
                           chunk.sum, axis=0, dtype=x.dtype),
    lambda x: x.map_blocks(chunk.sum, axis=(0,), keepdims=True, dtype=x.dtype),
    lambda x: x.argmax(axis=0),
])  # fmt: skip
def test_what_needs_what_is_joined_gets_it(again: Any) -> None:
    assert not changed(again(rows_of()))


def test_results_of_a_first_step_that_are_asked_for_stay() -> None:
    x = rows_of()
    first = x.map_blocks(chunk.sum, axis=(0,), keepdims=True, dtype=x.dtype, chunks=((1,), (6,)))
    assert not changed(first, first * 2)


def test_what_is_joined_for_others_too_is_joined() -> None:
    x = rows_of()
    assert not changed(x.sum(axis=0), x.map_blocks(np.sort, dtype=x.dtype))


def test_annotated_tasks_stay() -> None:
    x = da.from_array(VALUES, chunks=(20, 6))
    with dask.annotate(priority=1):
        found = x[ROWS].sum(axis=0)
    assert not changed(found)


def test_small_chunks_that_others_need_get_no_task_of_their_own() -> None:
    x = da.from_array(VALUES, chunks=(8, 6)) + 1
    found = x.rechunk((40, 6)).sum(axis=0)
    other = x.map_blocks(np.sort, dtype=x.dtype)
    assert not changed(found, other, least=1 << 20)
    assert changed(found, other)


def test_a_step_that_joins_many_results_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        reducefirst, "step_of", lambda task: asked.append(task.key) or step_of(task)
    )
    x = da.from_array(VALUES, chunks=(2, 6)).rechunk((8, 6))
    assert changed((x * 2).sum(axis=0, split_every=len(x)))
    assert len(asked) == 1


def test_results_as_large_as_what_is_joined_gain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducefirst, "LEFT", 2)
    x = da.from_array(VALUES, chunks=(8, 6))
    assert not changed(x[np.arange(0, 40, 8)].sum(axis=0))  # One row of each chunk.
    assert changed(x[np.arange(0, 40, 2)].sum(axis=0))


@given(st.data())
def test_any_rows_and_steps(drawn: st.DataObject) -> None:
    draw = drawn.draw
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-3, 4, shape)
    values = values.astype(draw(st.sampled_from(["f8", "f4", "i4", "i8", "c16", "?"])))
    if values.dtype.kind == "f" and draw(st.booleans()):
        values[values == 2] = np.nan
    x = da.from_array(values, chunks=tuple(draw(st.integers(1, n)) for n in shape))
    for _ in range(draw(st.integers(1, 3))):
        axis = draw(st.integers(0, ndim - 1))
        kind = draw(st.integers(0, 4))
        if kind == 0 and x.dtype.kind != "b":
            x = draw(st.sampled_from([abs, np.negative, lambda a: a * 2 + 1, lambda a: a - a.max()
                                      if a.dtype.kind != "c" else a]))(x)  # fmt: skip
        elif kind == 1:
            x = x.rechunk(draw(st.sampled_from([-1, {axis: -1}, 2, {axis: 3}])))
        elif kind == 2:
            x = da.concatenate([x, x], axis=axis).rechunk({axis: -1})
        else:
            length = x.shape[axis]
            rows = draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=2 * length))
            x = da.take(x, rows, axis=axis)
    axes = draw(st.sampled_from([None, 0, ndim - 1, tuple(range(ndim))]))
    names = ["sum", "any", "all", "mean", "var", "prod", "min", "max"]
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        if x.dtype.kind == "c" and name in ("min", "max"):
            continue
        found = getattr(x, name)(axis=axes)
        with np.errstate(all="ignore"):
            changed(found)
            changed(found, x)
