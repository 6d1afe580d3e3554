"""`gpusched.apply` with functions of NumPy arrays: rows, shapes, dtypes, chunks and batches."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched import models
from tests.models.given import FEATURES, ROWS, address, only_chunk, rows, values, watched

WEIGHTS = np.arange(FEATURES * 3, dtype="float32").reshape(FEATURES, 3)

CALLS: list[int] = []
"""Rows of the calls of `Counted`."""


class Counted:
    """Notes how many rows it is given."""

    def __call__(self, x: Any) -> Any:
        CALLS.append(len(x))
        return x


def project(x: Any) -> Any:
    return x @ WEIGHTS


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_result_is_that_of_the_whole_array(scheduler: str) -> None:
    y = gpusched.apply(project, rows())
    assert (y.shape, y.dtype, y.chunks) == ((ROWS, 3), np.float32, ((30, 30, 30, 10), (3,)))
    found = y.compute(scheduler=scheduler)
    np.testing.assert_allclose(found, project(values()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(axis=1),
        lambda x: x[:, :, None] * np.ones((1, 1, 2)),
        lambda x: x[:, :0],
        lambda x: x > 0,
        lambda x: x.astype("int16"),
        lambda x: x,
        lambda x: x[:, ::-1],
        lambda x: np.broadcast_to(np.float64(1), (len(x), 4, 5, 6)),
    ],
)
def test_rows_of_any_shape_and_dtype(function: Any) -> None:
    y, expected = gpusched.apply(function, rows()), function(values())
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    found = y.compute()
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@given(
    chunks=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    batch=st.one_of(st.none(), st.integers(1, 25), st.just("100 B")),
    out=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from(["float64", "int8", "bool", "datetime64[s]", "U3"]),
)
def test_any_chunks(chunks: list[int], batch: Any, out: list[int], dtype: str) -> None:
    x = np.arange(sum(chunks) * 2).reshape(-1, 2).astype("int64").astype(dtype)
    whole = da.from_array(x, chunks=(tuple(chunks), 2))

    def spread(block: Any) -> Any:
        return np.broadcast_to(block[:, :1].reshape(-1, *[1] * len(out)), (len(block), *out))

    y = gpusched.apply(spread, whole, batch=batch)
    found = y.compute(scheduler="synchronous")
    np.testing.assert_array_equal(found, spread(x))
    assert (found.dtype, y.dtype, y.shape) == (x.dtype, x.dtype, found.shape)


@pytest.mark.parametrize("batch", [12, f"{12 * FEATURES * 4} B"])
def test_batch_bounds_the_rows_of_a_call(batch: Any) -> None:
    CALLS.clear()
    y = gpusched.apply(Counted(), rows(), batch=batch)
    assert CALLS == [2]
    np.testing.assert_array_equal(y.compute(scheduler="synchronous"), values())
    assert sorted(CALLS) == sorted([2, *[12, 12, 6] * 3, 10])


def test_empty_chunks_are_not_given_to_the_model() -> None:
    CALLS.clear()
    x = da.from_array(values(), chunks=((0, 100, 0), FEATURES))
    y = gpusched.apply(Counted(), x, meta=np.empty((0, FEATURES), "float32"))
    np.testing.assert_array_equal(y.compute(), values())
    assert CALLS == [100]
    nothing = gpusched.apply(project, x[:0])
    assert nothing.compute().shape == (0, 3)


@pytest.mark.parametrize(
    "told",
    [
        {"meta": np.empty((0, 3), "float32")},
        {"dtype": "float32", "shape": (3,)},
        {"dtype": "float32", "shape": 3},
    ],
)
def test_nothing_runs_where_results_are_told(told: dict[str, Any]) -> None:
    def project_later(x: Any) -> Any:
        assert len(x) > 2
        return x @ WEIGHTS

    y = gpusched.apply(project_later, rows(), **told)
    np.testing.assert_allclose(y.compute(), project(values()), rtol=1e-5, atol=1e-5)


def test_dtype_converts_results() -> None:
    y = gpusched.apply(project, rows(), dtype="float64")
    assert y.dtype == y.compute().dtype == np.float64


def test_several_inputs_have_their_chunks_matched() -> None:
    x, z = rows(), rows("int32", 3, 2, chunk=45)
    y = gpusched.apply(lambda a, b, scale: a.sum(1) + b.sum((1, 2)) * scale, x, z, scale=2)
    assert y.chunks == ((30, 15, 15, 30, 10),)
    expected = values().sum(1) + values("int32", 3, 2).sum((1, 2)) * 2
    np.testing.assert_allclose(y.compute(), expected, rtol=1e-5)


def test_several_results() -> None:
    y, z = gpusched.apply(lambda x: (x.sum(1), x > 0), rows())
    assert (y.shape, z.shape, z.dtype) == ((ROWS,), (ROWS, FEATURES), bool)
    found = dask.compute(y, z)
    np.testing.assert_array_equal(found[1], values() > 0)
    dtypes = {"total": "float64", "x": "float32"}
    named = gpusched.apply(lambda x: {"total": x.sum(1), "x": x}, rows(), dtype=dtypes)
    assert list(named) == ["total", "x"]
    assert named["total"].compute().dtype == np.float64
    metas = (np.empty(0, "float32"), np.empty((0, FEATURES), bool))
    told = gpusched.apply(lambda x: [x.sum(1), x > 0], rows(), meta=metas)
    np.testing.assert_array_equal(told[0].compute(), found[0])


def test_the_model_runs_once_for_all_its_results() -> None:
    CALLS.clear()
    counted = Counted()
    y, z = gpusched.apply(lambda x: (counted(x), x + 1), rows())
    CALLS.clear()
    dask.compute(y + 1, z * 2, scheduler="synchronous")
    assert sorted(CALLS) == [10, 30, 30, 30]


@pytest.mark.parametrize(("core", "shape"), [(1, (20, 5)), (0, (20, 5, 3)), (None, (20,))])
def test_core_axes_make_up_a_row(core: int | None, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).random((20, 5, 3))
    x = da.from_array(image, chunks=(8, 5, 3) if core is None else (8, 2, 3))

    def total(rows: Any) -> Any:
        assert rows.ndim == {1: 2, 0: 1, None: 3}[core]
        return rows.reshape(len(rows), -1).sum(1)

    y = gpusched.apply(total, x, core=core, batch=7)
    assert y.shape == shape
    found = y.compute().reshape(shape)
    np.testing.assert_allclose(found, image.reshape(*shape, -1).sum(-1))


def test_rows_of_unknown_number() -> None:
    x = rows()
    y = gpusched.apply(project, x[x[:, 0] > 0])
    kept = values()[values()[:, 0] > 0]
    np.testing.assert_allclose(y.compute(), project(kept), rtol=1e-5, atol=1e-5)


def test_numpy_arrays_are_computed_at_once() -> None:
    found = gpusched.apply(project, values(), batch=9)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, project(values()), rtol=1e-5, atol=1e-5)
    mixed = gpusched.apply(lambda a, b: a + b, rows(), values())
    np.testing.assert_array_equal(mixed.compute(), values() * 2)


def test_chunks_and_results_are_not_copied() -> None:
    x, chunks = watched()
    y = gpusched.apply(lambda x: x, x, meta=np.empty((0, FEATURES), "float32"))
    assert address(only_chunk(y)) == address(chunks[0])


def test_a_function_that_writes_to_its_input_gets_copies() -> None:
    def spoil(x: Any) -> Any:
        x += 1
        return x

    held = rows().persist()
    y = gpusched.apply(spoil, held)
    np.testing.assert_array_equal(y.compute(), values() + 1)
    np.testing.assert_array_equal(held.compute(), values())


def test_what_becomes_of_a_model_later_changes_nothing() -> None:
    weights = WEIGHTS.copy()
    y = gpusched.apply(lambda x: x @ weights, rows())
    weights[:] = 0
    np.testing.assert_allclose(y.compute(), project(values()), rtol=1e-5, atol=1e-5)


def test_equal_calls_have_equal_names() -> None:
    x = rows()
    assert gpusched.apply(project, x).name == gpusched.apply(project, x).name
    assert gpusched.apply(project, x).name != gpusched.apply(project, x, batch=3).name
    assert gpusched.apply(project, x).name != gpusched.apply(project, x + 1).name


def test_a_loader_is_called_once_a_computation_in_however_many_threads() -> None:
    LOADS.clear()
    y = gpusched.apply(load, rows(chunk=1), meta=np.empty((0, 3), "float32"))
    assert LOADS == []
    found = y.compute(scheduler="threads", num_workers=8)
    np.testing.assert_allclose(found, project(values()), rtol=1e-5, atol=1e-5)
    assert len(LOADS) == 1
    assert models.loaded() == []


LOADS: list[str] = []


def load() -> Any:
    LOADS.append(threading.current_thread().name)
    return project


def test_methods_of_objects() -> None:
    y = gpusched.apply(Doubler(), rows(), method="double")
    np.testing.assert_array_equal(y.compute(), values() * 2)


class Doubler:
    def double(self, x: Any) -> Any:
        return x * 2


def test_read_only_chunks_bring_no_warning() -> None:
    chunk = values()
    chunk.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = gpusched.apply(project, da.from_array(chunk, chunks=-1))
        np.testing.assert_allclose(y.compute(), project(chunk), rtol=1e-5, atol=1e-5)
