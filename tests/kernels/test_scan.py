"""Users' scans give what NumPy's accumulations give, over chunks as on the whole."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace
from typing import Any
from unittest import mock

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.backends.devices import HOST
from gpusched.kernels import KernelError
from gpusched.record import scans
from tests.record.recording import record
from tests.tiers import exhaustive


@gpusched.kernel.scan(identity=0)
def running_total(a, b):
    return a + b


@gpusched.kernel.scan(identity=-math.inf, value=lambda x: abs(x))
def largest_so_far(a, b):
    return a if a >= b or a != a else b


ARRAYS = st.sampled_from("bhilBILfd").flatmap(
    lambda c: hnp.arrays(
        np.dtype(c),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=8),
        elements=hnp.from_dtype(np.dtype(c), min_value=0, max_value=50),
    )
)


@given(ARRAYS, st.integers(0, 2))
def test_totals_are_numpys(array: np.ndarray, axis: int) -> None:
    axis %= array.ndim
    for view in (array, array[..., ::-1]):
        found = record(lambda a: running_total(a, axis=axis), view, backend="python").result
        wide = view.astype("i8") if view.dtype.kind in "iu" and view.dtype != "u8" else view
        expected = wide.cumsum(axis=axis)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_first_element_stays_what_it_is() -> None:
    for values in (np.array([-0.0, 0.0, 2.0]), np.array([[-0.0, -0.0], [1.0, -0.0]])):
        for axis in range(values.ndim):
            found = running_total(values, axis=axis)
            np.testing.assert_array_equal(found, values.cumsum(axis))
            np.testing.assert_array_equal(np.signbit(found), np.signbit(values.cumsum(axis)))


def test_results_are_arrays_of_their_own() -> None:
    for values in (np.ones((1, 3)), np.ones((0, 3))):
        found = running_total(values, axis=0)
        assert found.shape == values.shape
        assert not np.shares_memory(found, values)
        assert running_total(values).shape == (values.size,)


@gpusched.kernel.scan(identity=0)
def last_that_counts(a, b):
    """Joins in order only: associative, and not commutative."""
    return b if b != 0 else a


FEW_LANES = replace(HOST, can=replace(HOST.can, host_memory=False))
"""A device that threads with a lane each would not keep busy."""


@given(
    hnp.arrays("i8", st.tuples(st.integers(1, 3), st.integers(1, 70)), elements=st.integers(-3, 3)),
    st.sampled_from(["C", "F"]),
    st.integers(0, 1),
)
def test_few_lanes_are_scanned_in_blocks(array: np.ndarray, order: Any, axis: int) -> None:
    whole = np.array(array if axis else array.T, order=order)
    view, other = whole[::-1], (whole + 1)[::-1]
    with mock.patch.object(scans, "SCANNED_BLOCK", 4):
        found = record(lambda a: last_that_counts(a * 2, axis=axis), view, backend="python",
                       device=FEW_LANES)  # fmt: skip
    for values, result in ((view, found.result), (other, found.run(other))):
        expected = [list(itertools.accumulate(lane, last_that_counts.python))
                    for lane in np.moveaxis(values * 2, axis, 1).tolist()]  # fmt: skip
        np.testing.assert_array_equal(np.moveaxis(result, axis, 1), expected)
    lengths = [launch.loops.sizes[launch.kernel.kernel.loops.index("scan")]
               for launch in found.launches if launch.kernel.kernel.scanned]  # fmt: skip
    assert max(lengths, default=0) <= 4


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 100_003), (300_000,), (300, 200, 7)], ids=str)
@pytest.mark.parametrize("kernel", [running_total, largest_so_far, last_that_counts])
def test_on_a_gpu(kernel: Any, shape: tuple[int, ...]) -> None:
    import cupy

    values = np.random.default_rng(0).integers(-3, 4, shape)
    for axis in range(len(shape)):
        found = kernel(cupy.asarray(values), axis=axis)
        np.testing.assert_array_equal(found.get(), kernel(values, axis=axis))


def test_values_are_joined_in_order() -> None:
    x = np.random.default_rng(0).normal(size=100)
    with pytest.warns(UserWarning, match="depends on where an array is divided into chunks"):
        last = gpusched.kernel.scan(identity=0.0)(lambda a, b: a * 0.5 + b)
    expected = list(itertools.accumulate(x, last.python))
    np.testing.assert_array_equal(last(x), expected)


def test_no_recording_of_a_scan_fails() -> None:
    x = da.ones((400, 300), chunks=(100, 300))
    with gpusched.enable():
        found = gpusched.explain(largest_so_far(x * 2, axis=0) + running_total(x, axis=1))
    assert [each.reason for each in found.breaks if "recording failed" in each.reason] == []


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("chunks", [(7, 30), *exhaustive((10, 10), (40, 4))])
def test_dask(axis: int, chunks: Any) -> None:
    values = np.random.default_rng(0).normal(size=(40, 30))
    x = da.from_array(values, chunks=chunks)
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        for hook in (gpusched.enable, gpusched.disable):
            with hook():
                lazy = largest_so_far(x * 2, axis=axis) + 1
                expected = np.maximum.accumulate(abs(values * 2), axis=axis) + 1
                np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)
                ints = running_total((x * 10).astype("i2"), axis=axis)
                assert ints.dtype == np.int64
                expected = (values * 10).astype("i2").cumsum(axis=axis)
                np.testing.assert_array_equal(ints.compute(scheduler="sync"), expected)


def test_flattened() -> None:
    values = np.arange(12.0).reshape(3, 4)
    lazy = running_total(da.from_array(values, chunks=2))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), values.cumsum())


def test_pickling() -> None:
    again = pickle.loads(pickle.dumps(running_total))
    assert again(np.arange(4)).tolist() == [0, 1, 3, 6]


def test_refused() -> None:
    with pytest.raises(KernelError, match=r"was given a numpy\.float64"):
        running_total(np.float64(1), axis=0)
    with pytest.raises(np.exceptions.AxisError):
        running_total(np.ones(3), axis=1)
