"""Gaps filled with the last number before them: one kernel, and what bottleneck makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.backends.devices import HOST
from gpusched.emit.floatingpoint import take
from gpusched.plan.expression import UnfusibleError
from gpusched.plan.tiles import TiledLaunches
from gpusched.record import scans
from gpusched.record.chunk import LazyChunk
from gpusched.record.fills import filled, last_of
from tests.record.gaps import gaps, nanlast, push
from tests.record.recording import Recording, assert_same, record

NUMBERS = [np.nan, np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -2.5, 1e-45, 3e38]


def checked(array: np.ndarray, axis: int, limit: int | None = None, **options: Any) -> Recording:
    """Assert that what is recorded gives what the loop does, and from its plan again."""
    found = record(lambda a: filled(a, axis, limit), array, **options)
    for result in (found.result, found.run(array)):
        assert_same(result, push(array, limit, axis))
    assert not found.recorder.breaks
    return found


@pytest.mark.parametrize("limit", [None, 0, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_a_kernel_fills_what_it_computes(backend: str, order: Any, axis: int,
                                         limit: int | None) -> None:  # fmt: skip
    array = np.array(gaps(5, 7, 1100 if axis == 2 and backend == "cpu" else 6), order=order)
    found = record(lambda a: filled(a * 2 - 1, axis, limit), array, backend=backend)
    assert_same(found.result, push(array * 2 - 1, limit, axis))
    assert found.launches[0].kernel.kernel.loops.count("scan") == 1
    assert len(found.launches) == (1 if limit is None else 2)


@given(
    st.sampled_from(["f4", "f8"]).flatmap(
        lambda c: hnp.arrays(c, hnp.array_shapes(max_dims=3, max_side=5),
                             elements=st.sampled_from(NUMBERS).map(np.dtype(c).type))
    ),
    st.data(),
)  # fmt: skip
def test_values_are_the_loop_s(array: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    limit = data.draw(st.none() | st.integers(0, 6))
    view = data.draw(st.sampled_from([array, array[..., ::-1], array.T, array[::2]]))
    checked(view, axis, limit, backend="python")
    last = record(lambda a: last_of(a, axis, True), view, backend="python").result
    assert_same(last, nanlast(view, axis, True))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("limit", [None, 3])
def test_machine_code_has_the_loop_s_values(dtype: str, limit: int | None) -> None:
    array = gaps(40, 1300, dtype=dtype)
    for axis in (0, 1):
        checked(array, axis, limit)
        checked(array[::-1, ::-1], axis, limit)
    for axis in (0, 1):
        found = record(lambda a, k=axis: last_of(a * 2, k, False), array).result
        assert_same(found, nanlast(array * 2, axis))


@pytest.mark.parametrize("length", [32767, 32768])
def test_places_of_long_axes(length: int) -> None:
    checked(gaps(length, share=0.95), 0, 3)
    checked(gaps(2, length, share=0.95), 1, length - 2)


def test_few_lanes_are_filled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANNED_BLOCK", 4)
    few_lanes = replace(HOST, can=replace(HOST.can, host_memory=False))
    array = gaps(2, 71)
    for limit in (None, 5):
        checked(array, 1, limit, backend="python", device=few_lanes)
        checked(array.T[::-1], 0, limit, backend="python", device=few_lanes)


def test_what_follows_runs_on_the_same_rows() -> None:
    array = gaps(1200, 1024)
    found = record(lambda a: filled(a, 0, 5).max(axis=1), array)
    assert_same(found.result, push(array, 5, 0).max(axis=1))
    assert any(isinstance(step, TiledLaunches) for step, _, _ in found.plan.stages)


@pytest.mark.parametrize(
    ("array", "axis", "limit"),
    [
        (np.ones((2, 3), "i4"), 0, None),
        (np.ones((2, 3), "f2"), 0, None),
        (np.ones((0, 3)), 0, None),
        (np.ones(()), 0, None),
        (np.ones((2, 3)), None, None),
        (np.ones((2, 3)), 0, -1),
        (np.ones((2, 3)), 0, 1.5),
        (np.ones(3), 0, 1 << 31),
        (np.ones(3), 0, np.uint64(2)),
    ],
)
def test_what_no_kernel_fills_says_why(array: np.ndarray, axis: Any, limit: Any) -> None:
    def fill(chunk: LazyChunk) -> LazyChunk:
        with pytest.raises(UnfusibleError):
            filled(chunk, axis, limit)
        return chunk

    record(fill, array, backend="python")


@pytest.mark.parametrize("function", [np.sqrt, np.log, lambda a: 1 / (a - a), lambda a: a - a])
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_errors_are_those_of_elements_that_are_filled_too(backend: str, function: Any) -> None:
    array = np.array([[2.0, -1.0, 3.0], [np.inf, 4.0, -2.0]])
    with np.errstate(all="warn"):
        found = record(lambda a: filled(function(a), 1, 1), array, backend=backend)
        for values in (array, np.abs(array) + 1):
            with np.errstate(all="ignore"):
                expected = push(function(values), 1, 1)
            take()
            found.plan.run((values,))
            assert bool(take()) == bool(reported(function, values))
            with np.errstate(all="ignore"):
                assert_same(found.run(values), expected, ulp=6)


def reported(function: Any, values: np.ndarray) -> list[str]:
    """Return the errors that NumPy reports."""
    errors: list[str] = []
    with np.errstate(all="call", call=lambda name, _: errors.append(name)):
        function(values)
    return errors
