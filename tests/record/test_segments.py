"""Segmented reductions: one kernel, NumPy's values, and real arrays for what is not one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.backends.cache import reference
from gpusched.backends.devices import HOST
from gpusched.editing.samples import sample
from gpusched.emit.policy import LABELLED_COLUMNS
from gpusched.plan.expression import UnrecordableError
from gpusched.record.segments import moments, placed, reduced
from gpusched.tuning.cases import random_case
from tests.record.recording import BACKENDS, check, record

RANDOM = np.random.default_rng(5)

COMBINES = {"add": np.sum, "multiply": np.prod, "minimum": np.min, "maximum": np.max}


def by_label(array: np.ndarray, labels: np.ndarray, count: int, combine: str, axis: int) -> Any:
    """Return what each label's elements give, one label after the other."""
    nothing = {"add": 0, "multiply": 1, "minimum": np.inf, "maximum": -np.inf}[combine]
    found = [
        COMBINES[combine](array.compress(labels == k, axis), axis=axis, initial=nothing)
        for k in range(count)
    ]
    return np.stack(found, axis)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("combine", ["add", "maximum"])
def test_one_kernel_reduces_by_label(combine: str, order: Any, axis: int, backend: str) -> None:
    array = np.array(RANDOM.normal(size=(9, 5, 7)), order=order)
    labels = RANDOM.integers(-2, 6, array.shape[axis])
    found = record(
        lambda a, b: reduced(np.abs(a) + 1, b, 4, combine, axis), array, labels, backend=backend
    )
    assert len(found.launches) == 1
    expected = by_label(np.abs(array) + 1, labels, 4, combine, axis)
    np.testing.assert_allclose(found.result, expected, rtol=1e-13)
    again = found.run(array, np.roll(labels, 3))  # Other labels, and the same plan.
    expected = by_label(np.abs(array) + 1, np.roll(labels, 3), 4, combine, axis)
    np.testing.assert_allclose(again, expected, rtol=1e-13)


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=3, max_side=4)),
    st.data(),
)
def test_integers_wrap_as_numpy_s_do(array: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, array.ndim - 1))
    labels = data.draw(hnp.arrays(np.int8, array.shape[axis], elements=st.integers(-128, 127)))
    found = record(lambda a, b: reduced(a, b, 3, "add", axis), array, labels, backend="python")
    np.testing.assert_array_equal(found.result, by_label(array, labels, 3, "add", axis))


def test_more_columns_than_a_tile_has() -> None:
    columns = 2 * LABELLED_COLUMNS + 77
    array, labels = RANDOM.normal(size=(3, 11, columns)), RANDOM.integers(0, 3, 11)
    found = record(lambda a, b: reduced(a, b, 3, "add", 1), array, labels)
    np.testing.assert_allclose(found.result, by_label(array, labels, 3, "add", 1), atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_a_label_that_follow_each_other_are_joined_in_their_order(
    backend: str, order: Any
) -> None:
    def both(values: Any, labels: Any) -> Any:
        return tuple(reduced(values * 3, labels, 4, name, 0) for name in ("add", "maximum"))

    for _ in range(20):
        labels = np.repeat(RANDOM.integers(-2, 4, 9), RANDOM.integers(1, 12, 9))
        values = np.array(RANDOM.normal(size=(len(labels), 5)), order=order)
        total, largest = np.zeros((4, 5)), np.full((4, 5), -np.inf)
        for row, label in zip(values * 3, labels, strict=True):
            if label >= 0:
                total[label] += row
                largest[label] = np.maximum(largest[label], row)
        found = record(both, values, labels, backend=backend)
        np.testing.assert_array_equal(found.result[0], total)
        np.testing.assert_array_equal(found.result[1], largest)


def test_labels_along_contiguous_elements_are_not_the_innermost_loop() -> None:
    labels = RANDOM.integers(-1, 3, 11)
    whole = RANDOM.normal(size=(4, 5, 11))
    for array, sizes in (
        (whole, (11, 20)), (whole[:, :, :1].repeat(11, 2)[:, :4], (4, 11, 4)), (whole[0, :1], (11,))
    ):  # fmt: skip
        found = record(lambda a, b: reduced(a, b, 3, "add", a.ndim - 1), array, labels,
                       backend="python")  # fmt: skip
        (launch,) = found.launches
        assert launch.loops.sizes == sizes
        expected = by_label(array, labels, 3, "add", array.ndim - 1)
        np.testing.assert_allclose(found.result, expected, atol=1e-14)


def test_two_reductions_by_the_same_labels_are_one_kernel() -> None:
    array, labels = RANDOM.normal(size=(11, 40)), RANDOM.integers(0, 3, 11)
    found = record(
        lambda a, b: (reduced(a, b, 3, "add", 0), reduced(a > 0, b, 3, "add", 0, np.int64)),
        array, labels,
    )  # fmt: skip
    assert len(found.launches) == 1


def test_small_floats_add_up_in_wide_ones() -> None:
    array = np.full((1 << 15, 3), 1.1, np.float32)
    labels = np.zeros(len(array), np.int64)
    found = record(lambda a, b: reduced(a, b, 1, "add", 0), array, labels)
    np.testing.assert_allclose(found.result[0], len(array) * float(array[0, 0]), rtol=1e-7)


def test_nan_stays_with_its_label() -> None:
    array = np.array([[1.0], [np.nan], [3.0]])
    for combine in COMBINES:
        found = record(lambda a, b, c=combine: reduced(a, b, 2, c, 0), array,
                       np.array([0, 1, 0]), backend="python")  # fmt: skip
        assert np.isnan(found.result).tolist() == [[False], [True]]


def test_labels_beyond_all_are_left_out() -> None:
    for dtype in ("u1", "i1", "u8", "i8"):
        labels = np.array([0, 1, np.iinfo(dtype).max], dtype)
        assert placed(labels, 2).tolist() == [0, 1, -1]


def rows(dtype: str = "f4") -> np.ndarray:
    """Return small whole numbers, whose sums are exact in any order."""
    return RANDOM.integers(-8, 9, (20, 6)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "?"])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_or"])
def test_reduceat_gives_numpy_s_dtypes(name: str, dtype: str) -> None:
    ufunc = getattr(np, name)
    check(lambda a: ufunc.reduceat(a, [2, 3, 9], axis=0), rows(dtype), backend="python")


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduceat_and_bincount_are_segmented_reductions(backend: str) -> None:
    found = check(lambda a: np.add.reduceat(a, [2, 3, 9], axis=0), rows(), backend=backend)
    assert len(found.launches) == 1
    bins = np.array([3, 0, 3, 1])
    weights = np.array([0.5, -0.0, 2, 1])
    found = check(lambda w: np.bincount(bins, w, 6), weights, backend=backend)
    assert len(found.launches) == 1


def moments_of(values: np.ndarray, axis: int, skip: bool) -> list[np.ndarray]:
    """Return how many numbers there are along an axis, their sum, and squares of deviations."""
    missing = np.isnan(values)
    number = (~missing).sum(axis, keepdims=True)
    values = np.where(missing, 0, values) if skip else values
    total = values.sum(axis, keepdims=True)
    away = values - total / np.maximum(number, 1)
    away = np.where(missing, 0, away) if skip else away
    return [number.sum(axis), total.sum(axis), np.square(away).sum(axis)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [0, 1])
def test_moments_are_those_of_each_label(axis: int, backend: str) -> None:
    array, labels = RANDOM.normal(size=(30, 30)), RANDOM.integers(-1, 4, 30)
    array[3, 5] = np.nan
    for skip in (False, True):
        found = record(lambda a, b, s=skip: tuple(moments(a, b, 5, axis, s)), array, labels,
                       backend=backend)  # fmt: skip
        for k in range(5):
            expected = moments_of(array.compress(labels == k, axis), axis, skip)
            for part, wanted in zip(found.result, expected, strict=True):
                np.testing.assert_allclose(part.take(k, axis), wanted, rtol=1e-12, atol=1e-12)


def test_moments_read_values_twice_and_keep_no_array_of_their_size() -> None:
    array, labels = RANDOM.normal(size=(40, 500)), RANDOM.integers(0, 3, 40)
    found = record(lambda a, b: tuple(moments(a, b, 3, 0, True)), array, labels)
    whole = [each for each in found.launches if each.bytes_read >= array.nbytes]
    assert len(whole) == 2
    assert all(each.bytes_written < array.nbytes // 4 for each in found.launches)


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e8, 1e12])
def test_variances_by_label_are_no_less_exact_than_numpy_s(mean: float) -> None:
    array = RANDOM.normal(mean, 1, (400, 50))
    labels = np.arange(400) % 4
    found = record(lambda a, b: tuple(moments(a, b, 4, 0)), array, labels)
    squares = found.result[2]
    for k in range(4):
        own = array[labels == k]
        exact = own.astype(np.longdouble)
        exact = np.square(exact - exact.mean(axis=0)).sum(axis=0)
        of_numpy = np.abs(own.var(axis=0) * len(own) / exact - 1).max()
        ours = np.abs(squares[k] / exact - 1).max()
        assert ours <= 2 * of_numpy + 1e-14


def test_moments_of_equal_numbers_are_zero() -> None:
    array = np.full((30, 20), 0.1)
    found = record(lambda a, b: tuple(moments(a, b, 2, 0)), array, np.arange(30) % 2)
    assert found.result[2].max() < 1e-30


def test_reduceat_keeps_the_sign_of_zeros() -> None:
    zeros = np.array([[-0.0, -0.0], [-0.0, 0.0]])
    found = record(lambda a: np.add.reduceat(a, [0], axis=0), zeros).result
    assert np.signbit(found).tolist() == [[True, False]]
    assert np.signbit(np.add.reduceat(zeros, [0], axis=0)).tolist() == [[True, False]]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.add.reduceat(a, [5, 2], axis=0),
        lambda a: np.add.reduceat(a, [2, 2], axis=0),
        lambda a: np.bincount(np.array([1, 0, 2]), a[:3, 0], np.int64(4)),
        lambda a: np.bincount((a[:, 0] > 0).astype(np.int64)),
    ],
    ids=["falling", "empty", "minlength", "bins"],
)
def test_what_is_no_segmented_reduction_is_numpy_s(function: Any) -> None:
    array = RANDOM.normal(size=(9, 4))
    found = record(function, array)
    np.testing.assert_array_equal(found.result, function(array))
    assert found.recorder.breaks


def test_reduceat_raises_what_numpy_raises() -> None:
    with pytest.raises(IndexError):
        record(lambda a: np.add.reduceat(a, [0, 99], axis=0), np.ones((9, 4)))


def test_samples_for_tuning_have_labels_of_results_that_exist() -> None:
    array, labels = RANDOM.normal(size=(11, 40)), RANDOM.integers(0, 3, 11)
    found = record(lambda a, b: reduced(a, b, 3, "add", 0), array, labels, backend="python")
    kernel = found.launches[0].kernel.kernel
    made = sample(kernel, special=False)
    (results,) = made.call(reference(kernel).call)
    assert np.isfinite(results).all()
    assert set(made.inputs[kernel.labels].buffer.tolist()) <= {0, -1}
    case = random_case(kernel, found.launches[0], HOST)
    assert set(case.inputs[kernel.labels].tolist()) <= {0, -1}


LABELS = np.array([0, 2, 1, -1, 3, 3, 0, 0, 2, 5, 4, 1])
"""Of twelve elements; one counts from the end."""

AT = {
    "sums": lambda x, k: (np.add, np.zeros_like(x, shape=(7, 4)), k, x * 2),
    "largest": lambda x, k: (np.maximum, np.full_like(x, -np.inf, shape=(7, 4)), k, x * 2),
    "of one axis": lambda x, k: (np.add, np.zeros_like(x, shape=7), k, (x * 2)[:, 0]),
    "another axis": lambda x, k: (
        np.add,
        np.zeros_like(x, shape=(3, 7)),
        (slice(None), k),
        x.T[:3],
    ),
    "the last axis": lambda x, k: (np.add, np.zeros_like(x, shape=(3, 7)), (..., k), x.T[:3]),
    "counts": lambda x, k: (np.add, np.zeros_like(x, "i8", shape=7), k, np.int64(1)),
    "two axes": lambda x, k: (np.add, np.zeros_like(x, shape=7), np.reshape(k, (3, 4)), x[:3] * 2),
    "onto others": lambda x, k: (np.add, x * 2, k, x[:1] + 1),
    "products": lambda x, k: (np.multiply, x * 2, k, x + 1),
    "complex": lambda x, k: (np.add, np.zeros_like(x, "c16", shape=(7, 4)), k, x * 2j),
}


@pytest.mark.parametrize("name", AT)
def test_what_is_joined_at_positions(name: str) -> None:
    def joined(x: Any, labels: Any) -> Any:
        ufunc, target, index, values = AT[name](x, labels)
        ufunc.at(target, index, values)
        return target + 1

    x = RANDOM.normal(size=(12, 4))
    found = record(joined, x, LABELS, backend="python")
    assert not found.recorder.breaks
    np.testing.assert_allclose(found.result, joined(x, LABELS), rtol=1e-13)
    np.testing.assert_allclose(found.run(x, LABELS[::-1].copy()), joined(x, LABELS[::-1]))
    with pytest.raises(IndexError, match="index 12 is out of bounds for axis"):
        found.run(x, np.append(LABELS[:-1], 12))


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_zeros_that_nothing_is_added_to_keep_their_signs(dtype: str) -> None:
    def added(x: Any, labels: Any) -> Any:
        target = -(x * 0)
        np.add.at(target, labels, -0.0)
        return target

    x, labels = np.ones((12, 4), dtype), np.array([0, 2, 2, 5])
    found, expected = record(added, x, labels, backend="python").run(x, labels), added(x, labels)
    for part in ("real", "imag"):
        one, other = getattr(found, part), getattr(expected, part)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


REFUSED_AT = {
    "products of complex numbers": lambda x, k: np.multiply.at(x * 1j, k, x),
    "another dtype": lambda x, k: np.add.at(np.zeros_like(x, "f4", shape=7), k, x[:, 0] * 1),
    "what others see": lambda x, k: np.add.at(x, k, x * 2),
    "a real array": lambda x, k: np.add.at(np.zeros((12, 4)), k, x * 2),
    "two rows of positions": lambda x, k: np.add.at(x * 2, (k, k % 4), 1.0),
}


@pytest.mark.parametrize("name", REFUSED_AT)
def test_what_ends_a_recording_before_it_is_changed(name: str) -> None:
    with pytest.raises(UnrecordableError):
        record(lambda x, k: REFUSED_AT[name](x, k), np.ones((12, 4)), LABELS, backend="python")
