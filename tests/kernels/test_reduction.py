"""Users' reductions give what NumPy gives, in one pass with what they reduce."""

from __future__ import annotations

import math
import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.kernels import KernelError
from tests.record.recording import record


@gpusched.kernel.reduction(identity=0)
def total(a, b):
    return a + b


@gpusched.kernel.reduction(identity=-math.inf)
def largest(a, b):
    return a if a >= b or a != a else b


@gpusched.kernel.reduction(identity=0, value=lambda x, limit: 1 if x > limit else 0)
def count_above(a, b):
    return a + b


@gpusched.kernel.reduction(identity=False, value=lambda x: x > 0)
def any_positive(a, b):
    return a or b


@st.composite
def arrays_and_axes(draw: Any) -> tuple[np.ndarray, Any]:
    dtype = draw(st.sampled_from([np.dtype(c) for c in "bhilBHILfd"]))
    exact = {"allow_subnormal": False} if dtype.kind == "f" else {}
    elements = hnp.from_dtype(dtype, min_value=0, max_value=50, **exact)
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
    array = draw(hnp.arrays(dtype, shapes, elements=elements))
    axes = st.none()
    if array.ndim:
        axes |= st.integers(-array.ndim, array.ndim - 1)
        axes |= st.lists(st.integers(0, array.ndim - 1), min_size=1, unique=True).map(tuple)
    backwards = array[..., ::-1] if array.ndim else array
    return draw(st.sampled_from([array, array.T, backwards])), draw(axes)


@given(arrays_and_axes(), st.booleans())
def test_sums_are_numpys(case: tuple[np.ndarray, Any], keepdims: bool) -> None:
    array, axis = case
    found = total(array, axis=axis, keepdims=keepdims)
    wide = array.astype("i8") if array.dtype.kind in "iu" and array.dtype != "u8" else array
    expected = wide.sum(axis=axis, keepdims=keepdims)
    assert np.shape(found) == np.shape(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), -1])
def test_maxima(axis: Any) -> None:
    x = np.random.default_rng(0).normal(size=(700, 40)).astype("f4")
    x[3, 4] = np.nan
    found = largest(x, axis=axis)
    np.testing.assert_array_equal(found, x.max(axis=axis))
    assert found.dtype == np.float32


def test_an_empty_array_gives_the_identity() -> None:
    assert largest(np.zeros(0)) == -math.inf
    assert total(np.zeros((3, 0), "i4"), axis=1).tolist() == [0, 0, 0]


def test_values_of_several_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(50, 30))
    assert count_above(x, 0.5) == (x > 0.5).sum()
    np.testing.assert_array_equal(count_above(x, x.T[:1].T, axis=0), (x > x[:, :1]).sum(axis=0))
    assert any_positive(x) == True  # noqa: E712
    assert any_positive(-np.abs(x)).dtype == np.bool_


@pytest.mark.parametrize("axis", [None, 0, (1,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_dask(axis: Any, keepdims: bool) -> None:
    values = np.random.default_rng(0).normal(size=(64, 48))
    x = da.from_array(values, chunks=16)
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        for hook in (gpusched.enable, gpusched.disable):
            with hook():
                lazy = count_above(x * 2, 0.5, axis=axis, keepdims=keepdims)
                expected = (values * 2 > 0.5).sum(axis=axis, keepdims=keepdims)
                assert lazy.shape == expected.shape
                found = lazy.compute(scheduler="sync")
                np.testing.assert_array_equal(found, expected)
                assert lazy.dtype == found.dtype == np.int64


def test_map_and_reduction_are_one_pass() -> None:
    x = da.from_array(np.random.default_rng(0).random((64, 32)), chunks=16).persist()
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        count_above(x * 2, 0.5).compute(scheduler="sync")
    counts = gpusched.statistics()
    assert sorted(counts.kernels.values())[-1] == 8
    assert sum(n.startswith("multiply_lambda") or "multiply" in n for n in counts.kernels) == 1
    assert counts.bytes_read <= 64 * 32 * 8 + 100
    assert counts.bytes_written <= 11 * 8


def test_inside_a_function_of_the_users() -> None:
    x = da.from_array(np.random.default_rng(0).random((64, 32)), chunks=(16, 32)).persist()

    def above(block):
        return count_above(block * 2, 0.5, axis=1, keepdims=True) + 1

    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = x.map_blocks(above, chunks=((16,) * 4, (1,)), dtype="i8").compute(scheduler="sync")
    counts = gpusched.statistics()
    assert (counts.recordings, dict(counts.breaks)) == (1, {})
    expected = (x.compute() * 2 > 0.5).sum(axis=1, keepdims=True) + 1
    np.testing.assert_array_equal(found, expected)


def test_reference_execution_is_the_same() -> None:
    x = np.random.default_rng(0).normal(size=300)
    program = lambda a: total.frozen()(a * 2)  # noqa: E731
    slow, fast = (record(program, x, backend=b).result for b in ("python", "cpu"))
    assert slow == pytest.approx(fast, rel=1e-13)


def test_pickling() -> None:
    again = pickle.loads(pickle.dumps(count_above))
    x = np.arange(10.0)
    assert again(x, 3.5) == 6


@pytest.mark.parametrize(
    ("identity", "function", "reason"),
    [
        (0, lambda a: a, "joins two values"),
        ("0", lambda a, b: a, "identity of a reduction is a number"),
        (0.5, lambda a, b: a ^ b, "cannot be compiled"),
        (0, lambda a, b: (a, b), "joins two values into one"),
    ],
)
def test_refused(identity: Any, function: Any, reason: str) -> None:
    with pytest.raises(KernelError, match=reason):
        gpusched.kernel.reduction(identity)(function)(np.ones(2))


def test_wrong_number_of_arrays() -> None:
    with pytest.raises(KernelError, match="the values of one array; 2 were given"):
        total(np.ones(2), np.ones(2))


def test_wrong_axis_is_numpys_error() -> None:
    with pytest.raises(np.exceptions.AxisError):
        total(np.ones(3), axis=1)
