"""Many pieces of a chunk that are combined with elements of another: one task, the same results."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

import gpusched

DAYS, PLACES = 300, (20, 30)

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(DAYS, *PLACES))
MEANS = RANDOM.normal(size=(12, *PLACES))
MONTHS = np.arange(DAYS) // 25


def days(chunk: int = 100) -> Any:
    return da.from_array(VALUES, chunks=(chunk, *PLACES)) * 1.0


def means(chunk: int = 12) -> Any:
    return da.from_array(MEANS, chunks=(chunk, *PLACES))


def tasks_of(array: Any) -> int:
    """Return how many tasks compute something, in the graph that is run."""
    (optimised,) = dask.optimize(array)
    return sum(type(node) is Task for node in dict(optimised.__dask_graph__()).values())


def compared(array: Any) -> tuple[int, int]:
    """Return how many tasks there are in plain dask, and fused, whose results have to agree."""
    expected, plain = array.compute(), tasks_of(array)
    with gpusched.enable():
        fused = tasks_of(array)
        found = array.compute()
        again = array.compute()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, expected)
    return plain, fused


@pytest.mark.parametrize("chunk", [12, 1])
def test_a_chunk_is_a_task_however_small_the_means_are_chunked(chunk: int) -> None:
    x, m = days(), means(chunk)
    pieces = len((x - m[MONTHS]).chunks[0])
    before = gpusched.statistics()
    plain, fused = compared((x - m[MONTHS]) * 2)
    assert plain > 2 * pieces
    assert fused < plain - pieces
    kernels = gpusched.statistics().launches - before.launches
    assert kernels < pieces  # in two runs


def test_chunks_and_keys_are_those_of_dask() -> None:
    y = days() - means(1)[MONTHS]
    with gpusched.enable():
        z = y.persist()
    assert z.chunks == y.chunks
    assert z.__dask_keys__() == y.__dask_keys__()
    np.testing.assert_array_equal(z.blocks[7].compute(), y.blocks[7].compute())


def test_what_follows_takes_the_parts() -> None:
    y = days() - means()[MONTHS]
    expected = (y**2).mean(axis=0).compute()
    with gpusched.enable():
        found = (y**2).mean(axis=0).compute()
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize(
    "months",
    [np.full(DAYS, 5), np.arange(DAYS) % 12, np.arange(DAYS)[::-1] // 25, MONTHS - 12],
    ids=["one", "cycle", "backwards", "negative"],
)
def test_labels_in_any_order(months: np.ndarray) -> None:
    compared(days(90) - means()[months])
    compared(days(90) - means(1)[months])


def test_along_another_axis() -> None:
    x = da.from_array(VALUES.transpose(1, 2, 0).copy(), chunks=(10, 30, 100))
    m = da.from_array(MEANS.transpose(1, 2, 0).copy(), chunks=(20, 30, 1))
    compared(np.hypot(x, m[:, :, MONTHS]) - 1)


def test_two_things_taken_by_the_same_labels() -> None:
    spread = abs(means(1)) + 1
    compared((days() - means(1)[MONTHS]) / spread[MONTHS])


def test_a_function_that_is_not_of_elements_stays_apart() -> None:
    y = da.map_blocks(np.cumsum, days() - means(1)[MONTHS], axis=0, dtype="f8")
    compared(y)


def test_small_graphs_stay_as_dask_makes_them() -> None:
    y = days()[:50] - means()[MONTHS[:50]]
    plain, fused = compared(y)
    assert fused <= plain
