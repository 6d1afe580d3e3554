"""What dask does by where a chunk is: trimmed halos, and points of a gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched

RANDOM = np.random.default_rng(5)


@pytest.mark.usefixtures("everything_fused")
def test_other_points_are_another_plan() -> None:
    """Whether points are equally far apart is seen each time, though plans go by shapes."""
    values = RANDOM.normal(size=(30, 40))
    x = da.from_array(values, chunks=(10, 40))
    for points in (np.arange(30.0), np.arange(30.0) ** 2, np.arange(30.0) * 3):
        found = da.gradient(x, points, axis=0).compute(scheduler="sync")
        expected = da.gradient(x, points, axis=0)
        with gpusched.disable():
            np.testing.assert_array_equal(found, expected.compute(scheduler="sync"))


@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("axis", [0, 1])
def test_chunks_of_dask_take_their_own_points(axis: int) -> None:
    x = da.from_array(RANDOM.normal(size=(60, 60)), chunks=(20, 30))
    gradient = da.gradient(x, np.sort(RANDOM.normal(size=60)), axis=axis)
    found = gradient.compute(scheduler="sync")
    counts = gpusched.statistics()
    assert counts.fused_tasks == counts.tasks == 6
    assert not counts.breaks
    with gpusched.disable():
        np.testing.assert_array_equal(found, gradient.compute(scheduler="sync"))


@pytest.mark.usefixtures("everything_fused")
def test_chunks_are_trimmed_where_they_are() -> None:
    values = RANDOM.normal(size=(30, 8))
    x = da.from_array(values, chunks=(10, 8))
    found = da.map_overlap(lambda a: a * 2 + 1, x, depth=(2, 1), boundary="none", dtype=float)
    np.testing.assert_array_equal(found.compute(scheduler="sync"), values * 2 + 1)
    assert not gpusched.statistics().breaks


CHANGING = {
    "sum": np.sum,
    "last axis": partial(np.sum, axis=-1),
    "new axis": lambda a: a[None],
    "first": lambda a: a[0],
    "flat": np.ravel,
    "same": lambda a: a * 2,
    "number": lambda a: float(a[(0,) * a.ndim]),
    "list": lambda a: a.tolist(),
}
"""Functions that may return other axes than `map_overlap` is told of."""


def _outcome(array: da.Array) -> Any:
    try:
        return array.compute(scheduler="sync")
    except Exception as error:  # noqa: BLE001  compared with dask's
        return repr(error)


@pytest.mark.usefixtures("everything_fused")
def test_functions_that_return_fewer_axes_are_trimmed() -> None:
    one = da.map_overlap(np.sum, da.ones(3), depth=1, boundary="reflect", meta=np.empty(0))
    assert one.compute(scheduler="sync") == 5
    rows = da.map_overlap(partial(np.sum, axis=1), da.ones((4, 4), chunks=2), depth=1,
                          boundary=0, meta=np.empty(0))  # fmt: skip
    with gpusched.disable():
        expected = _outcome(rows)
    np.testing.assert_equal(_outcome(rows), expected)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("function", CHANGING.values(), ids=CHANGING)
@given(st.data())
def test_chunks_of_other_axes_are_trimmed_as_dask_does(function: Any, data: st.DataObject) -> None:
    """Functions return what they like: dask trims the axes that there are."""
    ndim = data.draw(st.integers(1, 3))
    x = da.ones((4,) * ndim, chunks=data.draw(st.sampled_from([2, 4])))
    boundary = data.draw(st.sampled_from(["reflect", "none", "periodic", 0]))
    options = data.draw(st.sampled_from([{}, {"drop_axis": 0}, {"new_axis": 0}]))
    depth = data.draw(st.sampled_from([1, {0: 1}]))
    found = da.map_overlap(function, x + 1, depth=depth, boundary=boundary, meta=np.empty(0),
                           **options)  # fmt: skip
    after = data.draw(st.sampled_from([lambda r: r, lambda r: r + 1, lambda r: r.sum()]))
    with gpusched.disable():
        expected = _outcome(after(found))
    np.testing.assert_equal(_outcome(after(found)), expected)


@pytest.mark.usefixtures("everything_fused")
def test_gradients_that_a_function_takes_are_numpys() -> None:
    """Where chunks are in device memory, too: parts of a column were not written there."""

    def slopes(x: Any) -> Any:
        down, across = np.gradient(x)
        return abs(down) + abs(across)

    found = da.from_array(RANDOM.normal(size=(5, 6)), chunks=-1).map_blocks(slopes, dtype=float)
    with gpusched.disable():
        expected = found.compute(scheduler="sync")
    np.testing.assert_array_equal(found.compute(scheduler="sync"), expected)


@pytest.mark.usefixtures("everything_fused")
def test_gradients_between_chunks_are_one_kernel() -> None:
    """Those at an end of a chunk with its halo are trimmed, but at the ends of the array."""
    values = RANDOM.normal(size=(1200, 1000))
    gradient = da.gradient(da.from_array(values, chunks=(200, 1000)), axis=0)
    np.testing.assert_array_equal(gradient.compute(scheduler="sync"), np.gradient(values, axis=0))
    assert gpusched.statistics().launches == 4 + 2 * 2
