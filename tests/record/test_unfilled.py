"""What stands in for copies has their shape, dtype and layout; copies are made once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.backends.devices import HOST
from gpusched.graph.functions.lonejoins import recorded_join
from gpusched.plan.grids import concatenate_shaped
from gpusched.plan.plan import Call
from gpusched.record import functions  # noqa: F401  NumPy's handlers
from gpusched.record.chunk import LazyChunk
from gpusched.record.postponed import FORMS
from gpusched.record.record import Recorder
from gpusched.record.views import copied

LENGTHS = st.sampled_from([0, 1, 2, 3, 5])


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of a shape in any order in memory, with steps between its elements."""
    axes = draw(st.permutations(range(len(shape))))
    steps = draw(st.tuples(*[st.sampled_from([1, 2, -1])] * len(shape)))
    base = np.zeros([shape[k] * abs(step) for k, step in zip(axes, steps, strict=True)], "f4")
    base = base[(..., *(slice(None, None, step) for step in steps))]
    if draw(st.booleans()) and shape:
        base = np.broadcast_to(base[:1], base.shape) if base.shape[0] else base
    return base.transpose(np.argsort(axes))


def check(function: object, *args: object, **kwargs: object) -> None:
    form = FORMS[function]
    expected, found = function(*args, **kwargs), form(*args, **kwargs)  # type: ignore[operator]
    assert found is not None
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.size:
        assert found.strides == expected.strides
    given = args[0] if isinstance(args[0], list) else [args[0]]
    assert not any(np.shares_memory(found, each) for each in given)


@given(st.data())
def test_copies(data: st.DataObject) -> None:
    shape = data.draw(st.lists(LENGTHS, max_size=4).map(tuple))
    array = data.draw(layouts(shape))
    check(np.copy, array)
    check(copied, array)


@given(st.data())
def test_concatenations(data: st.DataObject) -> None:
    shape = data.draw(st.lists(LENGTHS, min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    arrays = []
    for length in data.draw(st.lists(LENGTHS, min_size=1, max_size=3)):
        shape[axis] = length
        arrays.append(data.draw(layouts(tuple(shape))))
    check(np.concatenate, arrays, axis=axis)


@given(st.data())
def test_stacks(data: st.DataObject) -> None:
    shape = data.draw(st.lists(LENGTHS, max_size=3).map(tuple))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    arrays = [data.draw(layouts(shape)) for _ in range(data.draw(st.integers(1, 3)))]
    check(np.stack, arrays, axis=axis)


@given(st.data())
def test_joins_of_dask(data: st.DataObject) -> None:
    axis = st.lists(LENGTHS, min_size=1, max_size=3)
    lengths = data.draw(st.lists(axis, min_size=1, max_size=3))
    arrays = [data.draw(layouts(shape)) for shape in itertools.product(*lengths)]
    check(concatenate_shaped, arrays, tuple(map(len, lengths)))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (concatenate_shaped, ([np.ones((2, 1)), np.ones((1, 2))], (1, 2))),
        (concatenate_shaped, ([np.ones((2, 2)), np.ones((1, 2))], (1, 2))),
        (concatenate_shaped, ([np.ones(2), np.ones((2, 2))], (2,))),
        (np.concatenate, ([np.ones((2, 3)), np.ones((3, 2))], 0)),
        (np.concatenate, ([np.ones(2), np.ones(3)], 1)),
        (np.concatenate, ([np.ones(2), np.ones(3)], None)),
        (np.concatenate, ([np.ones(2), np.ones(3, "f4")], 0)),
        (np.concatenate, ([np.ones(2), np.ma.ones(3)], 0)),
        (np.stack, ([np.ones(2), np.ones(3)], 0)),
        (np.stack, ([np.ones(2), np.ones(2)], 2)),
    ],
)  # fmt: skip
def test_what_is_not_known(function: object, args: tuple[object, ...]) -> None:
    assert FORMS[function](*args) is None  # type: ignore[index]


@pytest.mark.parametrize(
    "join",
    [
        lambda x: np.concatenate([x, x.T]),
        lambda x: np.stack([x, x]),
        lambda x: np.concatenate([x]),
        lambda x: recorded_join([x, x], (1, 2)),
        lambda x: x.copy(),
    ],
)  # fmt: skip
def test_nothing_is_copied_by_a_recording(join: Callable[[LazyChunk], LazyChunk]) -> None:
    recorder, array = Recorder(HOST), np.asfortranarray(np.arange(9.0).reshape(3, 3))
    joined = join(LazyChunk(recorder, recorder.leaf(array)))
    np.exp(joined)
    assert [type(step) for step in recorder.postponed.steps] == [Call]
    # What reads other arrays does not have it copied.
    np.linalg.inv(LazyChunk(recorder, recorder.leaf(np.eye(2))))
    assert len(recorder.postponed.steps) == 1
    np.linalg.inv(joined.reshape(-1)[:9].reshape(3, 3) + np.eye(3))
    assert not recorder.postponed.steps
