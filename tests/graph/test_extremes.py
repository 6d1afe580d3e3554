"""dask's argmax and argmin: a kernel for each chunk and what comes before, and dask's places."""

from __future__ import annotations

import pickle
import warnings
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
from gpusched.adapters.arrays import nanargmin
from gpusched.breaks import GraphBreak
from gpusched.graph.functions.extremes import FirstOfChunk, first_for, recorded
from gpusched.graph.functions.known import exact_for
from gpusched.record.recorded import Sealed

RANDOM = np.random.default_rng(5)
NAMES = ("argmax", "argmin", "nanargmax", "nanargmin")


def values(dtype: str = "f8", *shape: int) -> np.ndarray:
    low, high = (0, 2) if dtype == "?" else (0, 5) if dtype[0] == "u" else (-2, 3)
    return RANDOM.integers(low, high, shape or (23, 17)).astype(dtype)


def seeing(places: np.ndarray) -> np.ndarray:
    return places + np.array(places.strides).sum()


def same(made: Any, expected: Any = None) -> Any:
    """Assert that a fused array is that of plain dask, or of NumPy; return the counts."""
    if expected is None:
        with gpusched.disable():
            expected = made().compute(scheduler="sync")
    gpusched.reset_statistics()
    with gpusched.enable():
        found = made().compute(scheduler="sync")
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    return gpusched.statistics()


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_one_kernel_for_each_chunk(name: str, axis: Any) -> None:
    x = values()
    if name.startswith("nan"):
        x[::3, ::4] = np.nan
    chunked = da.from_array(x, chunks=(9, 7))
    # Of equal ones in several chunks, dask does not take the first where there is no axis.
    counted = same(lambda: getattr(da, name)(chunked * 2 + 1, axis=axis),
                   None if axis is None else getattr(np, name)(x * 2 + 1, axis=axis))  # fmt: skip
    assert counted.launches == 9
    assert counted.bytes_read == x.nbytes
    assert not counted.breaks


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_chunks_of_nothing_but_nan_are_dask_s(dtype: str) -> None:
    """NumPy raises an error for these, which dask handles while it computes the chunk."""
    x = values(dtype, 6, 4)
    x[2, :2], x[4, 2:] = np.nan, np.nan
    chunked = da.from_array(x, chunks=(3, 2))
    with warnings.catch_warnings(action="ignore"):
        same(lambda: da.nanargmin(chunked * 2, axis=1))
        same(lambda: da.nanargmax(chunked * 2, axis=1))


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("name", NAMES)
def test_one_kernel_where_a_function_sees_how_results_are_laid_out(name: str) -> None:
    x = da.from_array(values("f8", 6, 5, 4), chunks=(3, 5, 2))
    counted = same(lambda: getattr(da, name)(x, axis=0).map_blocks(seeing, dtype=np.int64))
    assert counted.fused_tasks == 4
    assert not [why for _, why in counted.breaks if why.kind is GraphBreak.LAYOUT]


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_chunks_share_a_program_wherever_they_are() -> None:
    x = da.from_array(values("f8", 24, 16), chunks=(8, 8))
    for axis in (None, 0, 1):
        counted = same(lambda k=axis: (x + 1).argmax(axis=k))
        assert sum(counted.recorded.values()) == 1


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4"])
def test_dtypes(dtype: str) -> None:
    x = values(dtype)
    chunked = da.from_array(x, chunks=(9, 7))
    for name in NAMES:
        for axis in (None, 1):
            counted = same(lambda n=name, k=axis: getattr(da, n)(abs(chunked), axis=k))
            assert counted.launches == 9


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("dtype", ["c16", "M8[D]", "m8[s]", "O"])
def test_others_are_dask_s(dtype: str) -> None:
    x = da.from_array(values("i4").astype(dtype), chunks=(9, 7))
    for axis in (None, 0):
        same(lambda k=axis: x[::-1].argmax(axis=k))
        if dtype[0] not in "MmO":
            same(lambda k=axis: (x * 2).argmin(axis=k))


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_options_of_dask() -> None:
    x = da.from_array(values(), chunks=(4, 5))
    for options in ({"keepdims": True}, {"split_every": 2}, {"keepdims": True, "axis": 0}):
        same(lambda o=options: da.argmax(x * 3, **o))
    line = da.from_array(values("f8", 41), chunks=(9,))
    for axis in (None, 0):
        same(lambda k=axis: da.argmin(line * 3, axis=k))
    same(lambda: x[0].argmax() + x.argmin(axis=0)[:3])
    masked = da.ma.masked_greater(x, 1)
    same(lambda: da.argmax(masked, axis=0))


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_nothing_but_nan() -> None:
    x = values()
    x[:, 3] = np.nan
    x[:10, 5] = np.nan
    chunked = da.from_array(x, chunks=(9, 7))
    with warnings.catch_warnings(action="ignore"):
        with pytest.raises(ValueError, match="All NaN slice encountered"):
            da.nanargmax(chunked * 1, axis=0).compute(scheduler="sync")
        same(lambda: da.nanargmax(chunked[:, 4:] * 1, axis=0))
        same(lambda: da.nanargmin(chunked * 1))
        same(lambda: da.argmin(chunked * 1, axis=1))


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_errors_of_nothing_are_dask_s() -> None:
    for axis in (0, None):
        with gpusched.disable(), pytest.raises(ValueError, match=r".") as expected:
            da.argmax(da.ones((0, 3)) * 2, axis=axis).compute(scheduler="sync")
        with pytest.raises(ValueError, match=r".") as found:
            da.argmax(da.ones((0, 3)) * 2, axis=axis).compute(scheduler="sync")
        assert str(found.value) == str(expected.value)


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@given(st.data())
def test_any_chunks(drawn: st.DataObject) -> None:
    draw = drawn.draw
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(-2, 3, shape).astype("f8")
    x[x == draw(st.integers(-2, 3))] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    name = draw(st.sampled_from(NAMES))
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    chunked = da.from_array(x, chunks=chunks)

    def made() -> Any:
        return getattr(da, name)(chunked + chunked, axis=axis, split_every=draw_split)

    draw_split = draw(st.sampled_from([None, 2]))
    with warnings.catch_warnings(action="ignore"):
        try:
            with gpusched.disable():
                expected = made().compute(scheduler="sync")
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                made().compute(scheduler="sync")
        else:
            same(made, expected)


def test_without_kernels_numpy_finds_them() -> None:
    x = da.from_array(values("f8", 200, 90), chunks=(50, 45))
    with dask.config.set({"gpusched.fusion.compile": "off"}):
        for axis in (None, 0, 1):
            assert same(lambda k=axis: (x * 2 + 1).argmax(axis=k)).launches == 0


def test_what_dask_gives_is_known_in_every_process() -> None:
    for first, second in ((chunk.max, chunk.argmax), (chunk.nanmin, nanargmin)):
        given_ = partial(reductions.arg_chunk, first, second)
        found = exact_for(given_)
        assert type(found) is FirstOfChunk
        assert pickle.loads(pickle.dumps(found)) == found
    other = partial(reductions.arg_chunk, chunk.max, chunk.argmin)
    assert first_for(other) is other


def test_records_are_dask_s() -> None:
    x = values("f4", 4, 5)
    for place, axis in ((((8, 10), (20, 30)), (0, 1)), (8, (0,))):
        expected = reductions.arg_chunk(chunk.min, chunk.argmin, x, axis, place)
        sealed = Sealed(place)
        found = recorded(FirstOfChunk("first_minimum", False).plain(x, axis, sealed), sealed)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
