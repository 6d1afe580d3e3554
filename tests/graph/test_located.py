"""What dask does by where a chunk is: trimmed halos, and points of a gradient."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

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
