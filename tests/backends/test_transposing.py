"""Copies by blocks, and joins by these: the same elements as NumPy's and dask's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from dask.array import core
from hypothesis import given
from hypothesis import strategies as st

from gpusched.backends import devices
from gpusched.backends.devices import copy_into
from gpusched.plan.grids import concatenate_shaped

JOINS = concatenate_shaped, core.concatenate_shaped

LENGTHS = st.sampled_from([0, 1, 2, 5, 9])


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of a shape in any order in memory, some of it backwards or in steps."""
    axes = draw(st.permutations(range(len(shape))))
    steps = draw(st.tuples(*[st.sampled_from([1, 2, -1])] * len(shape)))
    base = np.random.default_rng(draw(st.integers(0, 9))).random(
        [shape[k] * abs(step) for k, step in zip(axes, steps, strict=True)]
    )
    dtype = draw(st.sampled_from(["f8", "f4", "i2", "c16", "?", "M8[s]", "O", "S3"]))
    base = np.asarray(base * 100).astype("i8").astype(dtype)
    base = base[(..., *(slice(None, None, step) for step in steps))]
    if draw(st.booleans()) and shape and base.shape[0]:
        base = np.broadcast_to(base[:1], base.shape)
    return base.transpose(np.argsort(axes))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "COPIED_TOGETHER", 2)


@given(st.data())
def test_copies_are_numpys(data: st.DataObject) -> None:
    shape = data.draw(st.lists(LENGTHS, max_size=4).map(tuple))
    array = data.draw(arrays(shape))
    into, expected = np.empty(shape, array.dtype), np.empty(shape, array.dtype)
    copy_into(into, array)
    expected[...] = array
    np.testing.assert_array_equal(into, expected)


def test_what_is_shorter_is_broadcast() -> None:
    array = np.arange(12).reshape(4, 3).T
    into = np.empty((2, 3, 4), int)
    copy_into(into, array)
    np.testing.assert_array_equal(into, [array, array])


@given(st.data())
def test_joins_are_dasks(data: st.DataObject) -> None:
    axis = st.lists(LENGTHS, min_size=1, max_size=2)
    lengths = data.draw(st.lists(axis, min_size=1, max_size=3))
    parts = [data.draw(arrays(shape)) for shape in itertools.product(*lengths)]
    shape = tuple(map(len, lengths))
    found, expected = (
        _called(f, parts, shape) for f in (concatenate_shaped, core.concatenate_shaped)
    )
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        assert (found.dtype, found.strides) == (expected.dtype, expected.strides)
        np.testing.assert_array_equal(found, expected)
        assert not any(np.shares_memory(found, part) for part in parts)


def _called(function: Any, parts: list[Any], shape: tuple[int, ...]) -> Any:
    """Return what a function returns, or the kind of what it raises: of dtypes that do not fit."""
    try:
        return function(list(parts), shape)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return error


@pytest.mark.parametrize(
    "parts",
    [
        [np.ones((1, 2)), np.ones(2)],
        [np.ma.masked_equal([[1.0, 2.0]], 2), np.ones((1, 2))],
        [1.5, np.ones((1, 2))],
        [np.ones((1, 2)), np.ones((1, 3))],
        [np.ones((3, 2)), np.ones((1, 1))],
    ],
)
def test_other_parts_are_left_to_dask(parts: list[Any]) -> None:
    found, expected = (
        _called(f, parts, (2, 1)) for f in (concatenate_shaped, core.concatenate_shaped)
    )
    assert (type(found), str(found)) == (type(expected), str(expected))


def test_joins_keep_metadata() -> None:
    """By which h5py knows enumerations, whose numbers it writes as nothing else."""
    dtype = np.dtype("i4", metadata={"enum": {"one": 1}})
    parts = [np.ones((300, 300), dtype)] * 2
    for function in JOINS:
        assert function(parts, (2, 1)).dtype.metadata == dtype.metadata


def test_joins_of_nothing_are_dasks() -> None:
    for function in JOINS:
        assert function([], (0,)).shape == (0,)
