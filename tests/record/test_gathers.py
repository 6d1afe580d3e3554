"""Elements by label: part of the kernel that uses them, NumPy's values, and NumPy's errors."""

from __future__ import annotations

import math
import re
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.backends.cache import reference
from gpusched.editing.samples import sample
from gpusched.emit.policy import JOINED_ROWS
from gpusched.record.gathers import CHOICES
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import BACKENDS, assert_same, check, record

RANDOM = np.random.default_rng(7)

MONTHS = RANDOM.integers(0, 12, 31)


@pytest.mark.parametrize(
    ("order", "backend"),
    [
        ("C", "python"),
        ("F", "python"),
        ("C", "cpu"),
        pytest.param("F", "cpu", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_is_taken_is_part_of_the_kernel(order: Any, axis: int, backend: str) -> None:
    shape = [5, 6, 7]
    means = np.array(RANDOM.normal(size=shape), order=order)
    labels = RANDOM.integers(-shape[axis], shape[axis], 31)
    shape[axis] = len(labels)
    array = np.array(RANDOM.normal(size=shape), order=order)
    index = (slice(None),) * axis

    def anomaly(a: Any, m: Any, b: Any) -> Any:
        return (a - m[(*index, b)]) * 2

    found = check(anomaly, array, means, labels, backend=backend)
    assert len(found.launches) == 1
    other = np.roll(labels, 3)  # Other labels, and the same plan.
    again = found.run(array, means, other)
    np.testing.assert_array_equal(again, anomaly(array, means, other))


def test_no_array_of_what_is_taken_is_made() -> None:
    array, means = RANDOM.normal(size=(31, 2000)), RANDOM.normal(size=(12, 2000))
    found = check(lambda a, m: a - m[MONTHS], array, means)
    (launch,) = found.launches
    assert launch.bytes_read == array.nbytes + means.nbytes + MONTHS.nbytes


@given(st.data())
def test_integers_of_any_dtype_are_labels_as_numpy_takes_them(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["i1", "u1", "i4", "u4", "i8", "u8"]))
    length = data.draw(st.integers(1, 5))
    low = 0 if dtype[0] == "u" else -length
    labels = data.draw(hnp.arrays(dtype, st.integers(1, 9), elements=st.integers(low, length - 1)))
    values = np.arange(length * 3.0).reshape(length, 3)
    check(lambda v, b: v[b] + 1, values, labels, backend="python")


@given(st.data())
def test_expressions_of_what_is_taken_are_numpy_s(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    axis = data.draw(st.integers(0, ndim - 1))
    shape = data.draw(st.lists(st.integers(1, 7), min_size=ndim, max_size=ndim))
    order: Any = data.draw(st.sampled_from("CF"))
    dtype = data.draw(st.sampled_from(["f8", "f4", "i2", "i8"]))

    def numbers(shape: list[int]) -> np.ndarray:
        return np.array(RANDOM.integers(-9, 9, shape), dtype, order=order)

    table, count = numbers(shape), data.draw(st.sampled_from([1, 2, 5, 600]))
    labels = RANDOM.integers(-shape[axis], shape[axis], count)
    shape[axis] = count
    array = numbers([data.draw(st.sampled_from([1, n])) for n in shape])
    over = tuple(k for k in range(ndim) if data.draw(st.booleans()))
    index = (slice(None),) * axis
    flipped = data.draw(st.booleans())

    def function(a: Any, t: Any, b: Any) -> Any:
        found = t[(*index, b)] * 2 - a
        found = (found[::-1] if flipped else found) + 1
        return found.sum(axis=over) if over else found

    check(function, array, table, labels, backend="python")


@pytest.mark.parametrize("turn", [lambda x: x.transpose(2, 0, 1), lambda x: np.moveaxis(x, 1, 2)])
def test_what_is_taken_and_turned_is_read_where_it_is(turn: Any) -> None:
    array, labels = RANDOM.normal(size=(5, 9, 6)), RANDOM.integers(0, 8, 12)
    found = check(lambda a, b: turn(a[:, 1:][:, b] - a[:, :-1][:, b]), array, labels)
    assert len(found.launches) == 1


@given(st.data())
def test_what_is_taken_may_be_turned_and_joined_with_others(data: st.DataObject) -> None:
    shape = [data.draw(st.sampled_from([1, 3])) for _ in range(3)]
    array = np.array(RANDOM.integers(-9, 9, shape), "f8", order=data.draw(st.sampled_from("CF")))
    rows = [RANDOM.integers(-1, 1, 3), RANDOM.integers(-1, 1, 3)]
    order = st.permutations(range(3))
    turns = st.tuples(order, st.sampled_from([1, 1, -1]), order)
    one = st.tuples(
        st.integers(0, 2), st.integers(0, 1), st.booleans(), st.lists(turns, max_size=2)
    )
    terms = data.draw(st.lists(one, min_size=1, max_size=3))

    def function(a: Any, *labels: Any) -> Any:
        total: Any = 0
        for axis, which, computed, turned in terms:
            found = a[(*(slice(None),) * axis, labels[which])]
            if computed:
                found = found * 2 + a.max(axis=axis, keepdims=True)
            for first, step, second in turned:
                found = found.transpose(first)[..., ::step].transpose(second)
            total = found + total
        return total, total.transpose(1, 0, 2)

    check(function, array, *rows, backend="python")


def test_integers_that_wrap_do_so_as_in_numpy() -> None:
    check(lambda v, b: v[b] + 1, np.arange(3.0), np.array([2, 2**64 - 1], "u8"))


@pytest.mark.parametrize("wrong", [12, -13, 1 << 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_labels_out_of_bounds_are_numpy_s_error(axis: int, wrong: int) -> None:
    means = RANDOM.normal(size=(12, 12))
    labels = np.array([0, wrong])

    def taken(m: Any, b: Any) -> Any:
        return (m[b] if axis == 0 else m[:, b]) + 1

    with pytest.raises(IndexError) as expected:
        taken(means, labels)
    with pytest.raises(IndexError) as found:
        record(taken, means, labels)
    assert str(found.value) == str(expected.value)
    recorded = record(taken, means, np.array([0, 1]))
    with pytest.raises(IndexError) as found:
        recorded.run(means, labels)
    assert str(found.value) == str(expected.value)


@given(st.data())
def test_what_is_empty_is_taken_as_by_numpy(data: st.DataObject) -> None:
    """NumPy does not look at integers where it takes nothing; an index it does look at."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=2))
    axis = data.draw(st.integers(0, len(shape) - 1))
    labels = np.array(data.draw(st.lists(st.integers(-3, 3), max_size=3)), int)
    indexes = data.draw(st.booleans())

    def taken(a: Any, places: Any) -> Any:
        if indexes:
            return a[(slice(None),) * axis + (places,)] + 1
        return np.take(a, places, axis=axis) + 1

    array = np.ones(shape)
    try:
        expected = taken(array, labels)
    except IndexError as error:
        with pytest.raises(IndexError, match=re.escape(str(error))):
            record(taken, array, labels, backend="python")
        return
    assert_same(record(taken, array, labels, backend="python").result, expected)


def test_labels_may_be_computed_in_the_same_program() -> None:
    days, means = np.arange(40), RANDOM.normal(size=(12, 50))
    check(lambda d, m: m[d // 4 % 12] * 2, days, means, backend="python")


@pytest.mark.parametrize(
    "function",
    [
        lambda a, m: a + np.take(m, MONTHS, axis=1),
        lambda a, m: a + np.take(m, MONTHS, 1),
        lambda a, m: a + m.take(MONTHS, axis=-1),
        lambda a, m: a + m[..., MONTHS],
        lambda a, m: a[1:] + m[:-1, MONTHS],
        lambda a, m: a[:, 0] + m[:, MONTHS][:, 3],
    ],
    ids=["take", "take-position", "method", "ellipsis", "slice", "view"],
)
def test_all_that_takes_along_one_axis_is_recorded(function: Any) -> None:
    array, means = RANDOM.normal(size=(9, 31)), RANDOM.normal(size=(9, 12))
    found = check(function, array, means)
    assert not found.recorder.breaks


def test_one_label_is_broadcast() -> None:
    array, means = RANDOM.normal(size=(31, 8)), RANDOM.normal(size=(12, 8))
    check(lambda a, m, b: a - m[b], array, means, np.array([-2]), backend="python")
    check(lambda a, m, b: a[:1] - m[b], array, means, np.array([-2]), backend="python")
    check(lambda m, b: m[b] + m[MONTHS], means, np.array([3]), backend="python")


def test_two_kinds_of_labels_are_two_kernels() -> None:
    array, means = RANDOM.normal(size=(31, 8)), RANDOM.normal(size=(12, 8))
    hours = RANDOM.integers(0, 12, 31)
    found = check(lambda a, m: a - m[MONTHS] + m[hours], array, means, backend="python")
    assert len(found.launches) == 2
    found = check(lambda a, m: a - m[MONTHS] + (m * 2)[MONTHS], array, means, backend="python")
    assert len(found.launches) == 2  # the second computes what is taken


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_reductions_of_what_is_taken(along: int, axis: Any, backend: str) -> None:
    shape = (31, 40) if along == 0 else (40, 31)
    array = RANDOM.integers(-9, 9, shape).astype("f8")
    means = RANDOM.integers(-9, 9, (12, 40) if along == 0 else (40, 12)).astype("f8")

    def total(a: Any, m: Any) -> Any:
        return (a - (m[MONTHS] if along == 0 else m[:, MONTHS])).sum(axis=axis)

    found = check(total, array, means, backend=backend)
    assert len(found.launches) == 1


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_each_reduction_reads_what_it_takes_where_it_is(backend: str) -> None:
    values = RANDOM.normal(size=(30, 40))
    rows = [np.array(each) for each in ([0, 3, 4], [1, 2, 5], [6, 7, 8, 9])]
    rows += [RANDOM.permutation(30)[: 2 * JOINED_ROWS + 5]]

    def sums(v: Any, *rows: Any) -> Any:
        return tuple([v[each].sum(axis=0) for each in rows])

    found = check(sums, values, *rows, backend=backend)
    assert len(found.launches) == 4
    for launch, each in zip(found.launches, rows, strict=True):
        assert launch.bytes_read == len(each) * 40 * 8 + each.nbytes


@settings(max_examples=8)
@given(st.data())
def test_any_programs_that_take_at_several_places(data: st.DataObject) -> None:
    draw = data.draw
    values = RANDOM.integers(-9, 9, (6, 5)).astype("f8")
    labels = [np.array(draw(st.lists(st.integers(-5, 4), min_size=5, max_size=5)))
              for _ in range(3)]  # fmt: skip
    kinds = draw(st.lists(st.integers(0, 5), min_size=2, max_size=5))
    which = [draw(st.integers(0, 2)) for _ in kinds]
    axis = draw(st.integers(0, 1))

    def program(v: Any, *labels: Any) -> Any:
        found = []
        for kind, k in zip(kinds, which, strict=True):
            taken = v[labels[k]] if axis == 0 else v[:, labels[k]]
            found.append([
                lambda t, k=k: t.sum(axis=0), lambda t, k=k: t + 1, lambda t, k=k: t.max(axis=1),
                lambda t, k=k: t - t.sum(axis=0),
                lambda t, k=k: (t * (v[labels[k - 1]] if axis == 0 else v[:, labels[k - 1]])),
                lambda t, k=k: v * 2,
            ][kind](taken))  # fmt: skip
        return tuple(found)

    check(program, values, *labels, backend="python")


def test_moments_of_what_is_taken() -> None:
    array, means = RANDOM.normal(size=(31, 60)), RANDOM.normal(size=(12, 60))
    for axis in (0, 1):
        found = record(lambda a, m, k=axis: (a - m[MONTHS]).var(axis=k), array, means,
                       backend="python")  # fmt: skip
        expected = (array - means[MONTHS]).var(axis=axis)
        np.testing.assert_allclose(found.result, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a[np.array([[0, 1], [2, 0]])] + 1,
        lambda a: a[np.array([0, 1]), np.array([1, 2])] + 1,
        lambda a: a[a[:, 0] > 0] + 1,
        lambda a: a[[0, 1]] + 1,
        lambda a: a[0, np.array([0, 1])] + 1,
        lambda a: np.take(a, np.array([0, 1])) + 1,
        lambda a: a[np.array([], int)] + 1,
        lambda a: np.take(a, np.array([0, 1]), 0, mode="clip") + 1,
        lambda a: (a.astype("f2") + 1)[np.array([0, 1])] + 1,
        lambda a: (a + 1j)[np.array([0, 1])] + 1,
    ],
    ids=["square", "two", "mask", "list", "row", "flat", "none", "mode", "half", "complex"],
)
def test_what_is_no_row_along_one_axis_is_numpy_s(function: Any) -> None:
    array = RANDOM.normal(size=(9, 4))
    found = record(function, array)
    np.testing.assert_array_equal(found.result, function(array))
    assert found.recorder.breaks


def test_wrong_indices_are_numpy_s_errors() -> None:
    with pytest.raises(IndexError, match="too many indices"):
        record(lambda a: a[:, :, MONTHS] + 1, np.ones((9, 4)))
    with pytest.raises(IndexError, match="single ellipsis"):
        record(lambda a: a[..., ..., MONTHS] + 1, np.ones(12))
    with pytest.raises(np.exceptions.AxisError):
        record(lambda a: np.take(a, MONTHS, axis=2) + 1, np.ones((9, 4)))


def test_samples_for_tuning_have_labels_within_bounds() -> None:
    array, means = RANDOM.normal(size=(31, 8)), RANDOM.normal(size=(12, 8))
    kernel = record(lambda a, m: a - m[MONTHS], array, means).launches[0].kernel.kernel
    made = sample(kernel, special=False)
    (result,) = made.call(reference(kernel).call)
    assert np.isfinite(result).all()
    assert set(made.inputs[kernel.labels].buffer.tolist()) <= {0, 1}


@given(st.data())
def test_places_in_an_array_made_flat(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    dims = tuple(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    mode = data.draw(st.sampled_from(["wrap", "clip", "wrap", "clip", "raise"]))
    dtype = data.draw(st.sampled_from(["i1", "u1", "i4", "i8", "u8", "?"]))
    limits = np.iinfo(dtype) if dtype != "?" else None
    numbers = st.booleans() if limits is None else st.integers(limits.min, limits.max)
    numbers |= st.integers(0, 1) if limits is not None else numbers
    arrays = [np.array(data.draw(st.lists(numbers, min_size=4, max_size=4)), dtype).reshape(2, 2)
              for _ in range(count)]  # fmt: skip

    def places(*given: Any) -> Any:
        return np.ravel_multi_index(given, dims, mode=mode)

    try:
        expected = places(*arrays)
    except (ValueError, TypeError) as error:
        with pytest.raises(type(error)):
            record(places, *arrays, backend="python")
        return
    found = record(places, *arrays, backend="python")
    assert_same(found.result, expected)
    assert_same(found.run(*arrays), expected)


def chosen(mode: str, index: Any, *choices: Any) -> Any:
    return np.choose(index, choices, mode=mode)


@given(st.data())
def test_elements_of_several_arrays(data: st.DataObject) -> None:
    count, mode = (
        data.draw(st.integers(2, 4)),
        data.draw(st.sampled_from(["raise", "wrap", "clip"])),
    )
    dtype = data.draw(st.sampled_from(["?", "i1", "u1", "i4", "i8", "u8", "f4"]))
    beyond = data.draw(st.integers(0, 3)) if dtype[0] == "i" else 0
    numbers = st.integers(-beyond, count - 1 + beyond if dtype != "?" else 1)
    index = np.array(data.draw(st.lists(numbers, min_size=6, max_size=6)), dtype).reshape(2, 3)
    choices = [
        np.arange(6.0).astype(data.draw(st.sampled_from(["?", "i1", "u2", "f2", "f4", "f8", "c8"])))
        for _ in range(count)
    ]
    shapes = data.draw(st.lists(st.sampled_from([(2, 3), (1, 3), (2, 1), (3,)]), min_size=count,
                                max_size=count))  # fmt: skip
    arrays = [each[: math.prod(s)].reshape(s) for each, s in zip(choices, shapes, strict=True)]
    try:
        expected = chosen(mode, index, *arrays)
    except (ValueError, TypeError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            record(lambda *a: chosen(mode, *a), index, *arrays, backend="python")
        return
    found = record(lambda *a: chosen(mode, *a), index, *arrays, backend="python")
    assert_same(found.result, expected)
    assert_same(found.run(index, *arrays), expected)
    assert not found.recorder.breaks


def test_places_beyond_the_arrays_raise_as_numpy_does() -> None:
    index, x = np.array([0, 1, 0]), np.arange(3.0)
    found = record(lambda index, x: np.choose(index, [x, -x]), index, x)
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        found.run(index + 1, x)


def test_other_choices_are_numpy_s() -> None:
    index, x = np.array([0, 1, 0]), np.arange(3.0)
    for choices in ((1, 2.5), (x,), (x, 2.0)):
        found = record(lambda index, c=choices: np.choose(index % len(c), c), index)
        assert_same(found.result, np.choose(index % len(choices), choices))
    many = [x + k for k in range(CHOICES + 1)]
    assert_same(record(lambda i: np.choose(i * 2, many), index).result, np.choose(index * 2, many))


def test_dask_s_choose_is_one_kernel() -> None:
    x = da.from_array(np.linspace(-1, 1, 1200).reshape(40, 30), chunks=(20, 30))
    program = da.choose(x > 0, [x * 2, -x]) + 1
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
    assert statistics().launches == 2
    assert not statistics().breaks
