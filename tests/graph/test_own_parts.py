"""Joins of one chunk, which dask makes where functions drop axes: kernels read the chunk itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.lonejoins import own_part
from tests.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("everything_fused")

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "backwards": lambda a: a[::-1, :, ::-1],
    "cut": lambda a: np.concatenate([a, a], axis=2)[:, :, 3 : 3 + a.shape[2]],
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "big-endian": lambda a: a.astype(">f8"),
    "float16": lambda a: a.astype("f2"),
    "complex": lambda a: a + 1j,
}


def changed(x: Any) -> Any:
    x += 1
    return x.sum(axis=0)


def pieces(x: Any) -> Any:
    return x[0]


def both(x: Any) -> Any:
    return np.stack([np.median(x * 2, axis=0), x.mean(axis=0)])[1]


FUNCTIONS = (lambda x: np.sqrt(abs(x)).sum(axis=0), lambda x: np.median(x, axis=0), changed, pieces,
             both)  # fmt: skip


def values(layout: str) -> np.ndarray:
    found = np.random.default_rng(0).normal(size=(7, 5, 6)) * 9
    found[2, 3, 4], found[3, 1] = np.nan, -0.0
    return LAYOUTS[layout](found)


@pytest.mark.parametrize("layout", ["C", "F", *exhaustive(*list(LAYOUTS)[2:])])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("before", [False, True])
def test_results_are_those_of_dask_and_nothing_is_changed(
    function: Callable[[Any], Any], layout: str, before: bool
) -> None:
    array = values(layout)
    kept = array.copy()
    x = da.from_array(array, chunks=(7, 3, 6), name=False)
    y = x * 2 if before else x
    z = da.map_blocks(function, y, drop_axis=0, dtype=y.dtype, meta=np.empty((0, 0), y.dtype))
    with gpusched.disable():
        expected = z.compute(scheduler="sync")
    for _ in range(2):
        found = z.compute(scheduler="sync")
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=5e-3 if layout == "float16" else 1e-12)
        assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("layout", ["C", "F", *exhaustive(*list(LAYOUTS)[2:])])
@pytest.mark.parametrize("function", [np.copy, np.sort, lambda x: np.gradient(x, axis=0),
                                      lambda x: x + np.asarray(x.strides, x.dtype).sum(),
                                      changed, both])  # fmt: skip
def test_chunks_without_neighbours_are_copied_for_who_may_see_it(
    function: Callable[[Any], Any], layout: str
) -> None:
    """dask joins one chunk to itself, in C order, where an overlap has nothing to add."""
    array = values(layout)
    kept = array.copy()
    x = da.from_array(array, chunks=(7, 3, 6), name=False)
    y = da.overlap.overlap(x, depth={0: 1, 1: 0, 2: 0}, boundary="none")
    z = da.map_blocks(function, y, dtype=y.dtype, meta=np.empty((0, 0, 0), y.dtype)).persist(
        scheduler="sync"
    )
    with gpusched.disable():
        expected = da.map_blocks(function, y, dtype=y.dtype, meta=z._meta).persist(scheduler="sync")
    for key in expected.dask:
        one, other = z.dask[z.name, *key[1:]], expected.dask[key]
        one, other = (getattr(each, "value", each) for each in (one, other))
        assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
        np.testing.assert_allclose(one, other, rtol=5e-3 if layout == "float16" else 1e-12)
        assert not np.shares_memory(one, array)
    np.testing.assert_array_equal(array, kept)


def test_a_slope_reads_the_chunk_itself_and_writes_no_gradient() -> None:
    x = da.from_array(np.random.default_rng(0).normal(size=(4, 60, 70)), chunks=(2, 60, 70))
    along, across = da.gradient(x, axis=(1, 2))
    slope = np.sqrt(along**2 + across**2)
    gpusched.reset_statistics()
    found = slope.compute(scheduler="sync")
    statistics = gpusched.statistics()
    assert statistics.bytes_written == x.nbytes
    assert statistics.launches == 2 * 9
    along, across = np.gradient(x.compute(), axis=(1, 2))
    np.testing.assert_array_equal(found, np.sqrt(along**2 + across**2))


def test_medians_read_the_chunk_itself() -> None:
    x = da.from_array(values("C"), chunks=(7, 5, 6))
    y = da.nanmedian(x, axis=0)
    found = gpusched.explain(y)
    assert not any("own_part" in str(stage.calls) for stage in found.stages)
    np.testing.assert_array_equal(y.compute(), np.nanmedian(x.compute(), axis=0))


def test_parts_of_several_arrays_are_joined() -> None:
    x = da.from_array(values("C"), chunks=(4, 5, 6))
    y = da.blockwise(lambda a: np.sqrt(abs(a)).sum(axis=0), "jk", x, "ijk", concatenate=True,
                     dtype=float)  # fmt: skip
    with gpusched.disable():
        expected = y.compute()
    np.testing.assert_allclose(y.compute(), expected, rtol=1e-12)


def test_a_part_alone_is_copied() -> None:
    array = values("F")
    found = own_part(array)
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(found, array)


def test_a_chunk_in_another_order_is_copied_as_dask_copies_it_behind_its_kernel() -> None:
    x = da.from_array(values("C"), chunks=(7, 5, 3), name=False)
    y = (x * 2 + 1).T
    z = y.map_blocks(lambda each: np.sort(each, axis=1)[:, 0], drop_axis=1, dtype=y.dtype)
    with gpusched.disable():
        expected = z.compute(scheduler="sync")
    gpusched.reset_statistics()
    np.testing.assert_array_equal(z.compute(scheduler="sync"), expected)
    statistics = gpusched.statistics()
    assert statistics.launches == 2
    assert not [why for _, why in statistics.breaks if why.kind is GraphBreak.LAYOUT]


def raises(block: np.ndarray) -> np.ndarray:
    raise ValueError("of the user's")


def test_errors_name_functions_of_dask_s_and_of_the_user_s_only() -> None:
    x = da.from_array(values("C"), chunks=(7, 5, 6))
    y = da.blockwise(raises, "jk", x, "ijk", concatenate=True, dtype=float, meta=np.ones((0, 0)))
    with pytest.raises(ValueError, match="of the user's") as raised:
        y.compute(scheduler="sync")
    (note,) = raised.value.__notes__
    assert note.startswith("gpusched: raised in a chunk task of concatenate, raises")


def test_results_are_handed_on_without_being_counted_as_unfused() -> None:
    prices = da.from_array(np.random.default_rng(0).uniform(1, 2, (5000, 200)), chunks=(1000, 200))
    returns = np.log(prices[1:] / prices[:-1])
    program = returns.mean(0), returns.std(0, ddof=1), (returns < 0).mean(0)
    gpusched.reset_statistics()
    dask.compute(*program, scheduler="sync")
    assert not any(name == "together" for name, _ in gpusched.statistics().breaks)
    assert not any(found.operation == "together" for found in gpusched.explain(*program).breaks)
