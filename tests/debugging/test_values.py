"""What runs under the debugger, and what is traced, gives what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from tests.inspection.programs import PROGRAMS, numbers
from tests.tiers import every

ULP = 8
"""Units in the last place that compiled functions may be off by."""


def same(found: Any, wanted: Any) -> None:
    """Check a value, and its dtype."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    precision = np.finfo(wanted.dtype).eps if wanted.dtype.kind in "fc" else 0
    np.testing.assert_allclose(found, wanted, rtol=ULP * 8 * precision, equal_nan=True)


def arrays(program: Any) -> list[da.Array]:
    return program if isinstance(program, list) else [program]


@pytest.mark.parametrize("name", every(2, PROGRAMS))
def test_elements_are_those_that_are_computed(name: str, frames: list[FrameType]) -> None:
    for x in arrays(PROGRAMS[name]()):
        whole = np.asarray(x.compute())
        for index in ((0,) * x.ndim, (-1,) * x.ndim, tuple(n // 2 for n in x.shape)):
            same(gpusched.debug(x, index), whole[index])
            same(gpusched.trace_element(x, index).value, whole[index])
    assert frames


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_chunks_are_those_that_are_computed(
    build: Callable[[], Any], frames: list[FrameType]
) -> None:
    for x in arrays(build()):
        last = tuple(n - 1 for n in x.numblocks)
        whole = x.blocks[last].compute() if x.ndim else x.compute()
        same(gpusched.debug(x, chunk=(-1,) * x.ndim), whole)
    assert frames


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_the_last_value_of_a_trace_is_the_element(build: Callable[[], Any]) -> None:
    for x in arrays(build()):
        index = tuple(n // 3 for n in x.shape)
        trace = gpusched.trace_element(x, index)
        same(trace.steps[-1].value, trace.value)


def test_elements_that_kernels_choose_of_whole_rows_are_traced() -> None:
    rows = np.random.default_rng(0).normal(size=(6, 40))
    x = da.median(da.from_array(rows, chunks=(3, 20)) + 1, axis=1)
    same(gpusched.trace_element(x, (2,)).value, np.median(rows[2] + 1))


UNARY = (np.negative, np.abs, np.square, np.sqrt, np.floor, np.isfinite)
BINARY = (np.add, np.subtract, np.multiply, np.divide, np.maximum, np.less)
LAYOUTS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x,
    lambda x: x[::-1],
    lambda x: x[:, ::-1],
    lambda x: x.T,
    lambda x: x[:1],
    lambda x: x[:, 3:4],
    lambda x: x[2, 5],
    lambda x: x.sum(axis=1),
    lambda x: x.max(axis=0, keepdims=True),
)
Operation = tuple[Any, int, int]


@st.composite
def programs(draw: st.DrawFn) -> list[Operation]:
    """Draw operations, each with two of the values so far, or with layouts of them."""
    count = draw(st.integers(1, 6))
    kinds = st.sampled_from([*UNARY, *BINARY])
    places = st.integers(0, 100)
    return [(draw(kinds), draw(places), draw(places)) for _ in range(count)]


def run(operations: list[Operation], array: Any) -> Any:
    values = [layout(array) for layout in LAYOUTS]
    for function, first, second in operations:
        one, other = values[first % len(values)], values[second % len(values)]
        values.append(function(one) if function in UNARY else function(one, other))
    return values[-1]


@given(
    operations=programs(),
    dtype=st.sampled_from(["float64", "float32", "int64", "int16"]),
    place=st.integers(0, 10**6),
)
def test_any_program(operations: list[Operation], dtype: str, place: int) -> None:
    values = np.random.default_rng(0).integers(-9, 9, (12, 12)).astype(dtype)
    try:
        with np.errstate(all="ignore"):
            wanted = np.asarray(run(operations, values))
    except TypeError:
        return  # NumPy has no such function for booleans.
    x = run(operations, da.from_array(values, chunks=(5, 4)))
    index = tuple(int(k) for k in np.unravel_index(place % wanted.size, wanted.shape))
    with np.errstate(all="ignore"):
        same(gpusched.debug(x, index, stop="never"), wanted[index])
        trace = gpusched.trace_element(x, index)
    same(trace.value, wanted[index])
    same(trace.steps[-1].value, wanted[index])


def test_xarray_is_taken_by_position() -> None:
    labelled = xr.DataArray(numbers((40, 30), 20), dims=("y", "x"), coords={"y": range(40)})
    found = gpusched.debug(labelled * 2 + 1, (-1, 3), stop="never")
    same(found, (labelled * 2 + 1)[-1, 3].to_numpy()[()])


def test_masked_chunks() -> None:
    x = da.ma.masked_greater(numbers((40, 30), 20), 0.5)
    block = gpusched.debug(x * 2 + 1, chunk=(0, 0), stop="never")
    wanted = (x * 2 + 1).blocks[0, 0].compute()
    assert np.array_equal(np.ma.getmaskarray(block), np.ma.getmaskarray(wanted))
    assert np.ma.allclose(block, wanted)


@pytest.mark.parametrize("dtype", ["complex64", "float16", "M8[s]", "bool", "uint8"])
def test_other_dtypes(dtype: str) -> None:
    x = da.from_array(np.arange(40).astype(dtype), chunks=8)
    y = x[::-1] == x if dtype == "M8[s]" else x + x
    same(gpusched.debug(y, 13, stop="never"), y[13].compute())
    same(gpusched.trace_element(y, 13).value, y[13].compute())


def test_structured_elements() -> None:
    table = da.from_array(np.ones(10, [("a", "f8"), ("b", "i4")]), chunks=5)
    same(gpusched.debug(table["a"] * 3 + 1, 7, stop="never"), np.float64(4))


def test_an_empty_chunk() -> None:
    assert gpusched.debug(da.zeros((0, 5), chunks=5) * 2 + 1, chunk=(0, 0)).shape == (0, 5)


def test_chunks_of_unknown_length() -> None:
    x = numbers((40,), 20)
    large = x[x > 0.5] * 2 - 1
    same(gpusched.debug(large, chunk=(1,), stop="never"), large.blocks[1].compute())
