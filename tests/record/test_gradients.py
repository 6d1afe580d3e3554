"""`numpy.gradient`: NumPy's bits, from kernels that write parts of one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusched.breaks import GraphBreak
from gpusched.plan.plan import Launch, PartLaunch
from tests.record.recording import check, check_error, record
from tests.tiers import every

RANDOM = np.random.default_rng(5)

POINTS: dict[str, Any] = {
    "none": lambda n: (),
    "number": lambda n: (0.3,),
    "NumPy's number": lambda n: (np.float64(0.3),),
    "equal": lambda n: (np.arange(n) * 2,),
    "unequal": lambda n: (np.arange(n) ** 1.5,),
}


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradients_are_numpys(axis: int, edge_order: int, points: str) -> None:
    array = RANDOM.normal(size=(5, 6, 7))
    given = POINTS[points](array.shape[axis])

    def function(a: Any) -> Any:
        return np.gradient(a, *given, axis=axis, edge_order=edge_order)

    for form in (array, np.asfortranarray(array), array.astype("f4"), (array * 99).astype("i2")):
        found = check(function, form, backend="python")
        assert not found.recorder.breaks
        assert found.result.strides == function(form).strides
        assert sum(isinstance(step, PartLaunch) for step in found.launches) == 3


def test_parts_of_an_array_are_written_where_they_are() -> None:
    array = RANDOM.normal(size=(40, 1003))
    check(lambda a: np.gradient(a, 0.7, axis=1), array, errors="warn")


def test_all_axes_and_what_is_made_of_them() -> None:
    def function(a: Any) -> Any:
        first, second = np.gradient(a * 2)
        return np.sqrt(first**2 + second**2)

    array = RANDOM.normal(size=(9, 12))
    found = check(function, array, backend="python", errors="warn")
    # What it is of, and each of nine parts of the result: neither gradient is written.
    assert [type(step) for step in found.launches] == [Launch] + [PartLaunch] * 9
    assert sum(step.bytes_written for step in found.launches) == 2 * array.nbytes
    assert not found.recorder.breaks


def test_more_parts_than_some_are_computed_as_wholes() -> None:
    def function(a: Any) -> Any:
        first, second, third = np.gradient(a)
        return first * second + third

    found = check(function, RANDOM.normal(size=(4, 5, 6)), backend="python", errors="warn")
    assert sum(isinstance(step, PartLaunch) for step in found.launches) == 9 + 3


@pytest.mark.parametrize("call", [
    lambda g: np.exp(g) * 2,  # once for each element, whoever reads it
    lambda g: g > 0,
    lambda g: g + np.float64(1) * np.ones(7),
    lambda g: g[None] - g,
    lambda g: np.divmod(g, 2)[0],
])  # fmt: skip
def test_what_is_not_made_part_by_part_is_made_of_the_whole(call: Any) -> None:
    array = RANDOM.normal(size=(5, 7)).astype("f4")
    found = check(lambda a: call(np.gradient(a, axis=0)), array, backend="python", ulp=4)
    assert sum(isinstance(step, PartLaunch) for step in found.launches) == 3


@pytest.mark.parametrize("seed", every(8, range(300)))
def test_what_is_computed_of_gradients_is_numpys(seed: int) -> None:
    """Whatever divides the parts: several gradients, rows, columns, means, the array itself."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 6, random.integers(1, 4)).tolist())
    array = random.normal(size=shape)
    array[random.random(shape) < 0.1] = random.choice([np.nan, np.inf, -np.inf, 1e308, -0.0])
    with np.errstate(all="ignore"):
        array = array.astype(random.choice(["f8", "f8", "f4", "f2", "i4"]))
    array = np.asarray(array, order=random.choice(["C", "F"]))
    axes = random.integers(len(shape), size=2).tolist()
    kinds = random.integers(9, size=6).tolist()

    def function(a: Any) -> Any:
        known = [np.gradient(a, axis=axis) for axis in axes]
        row = a[:1] * 2
        for kind, place in zip(kinds, (0, 1, 0, 1, 2, 3), strict=True):
            one, other = known[place % len(known)], known[(place + 1) % len(known)]
            known.append([
                lambda x, y: x * y, lambda x, y: x**2, lambda x, y: abs(x) + 1,
                lambda x, y: x - a, lambda x, y: x / row, lambda x, y: x + a.sum(axis=0),
                lambda x, y: np.add(x, y), lambda x, y: np.square(x)[..., :1] - y,
                lambda x, y: np.sqrt(abs(x)) * 0.5,
            ][kind](one, other))  # fmt: skip
        known[-1] += 1
        return known[-1], known[2], known[-2][::-1]

    check(function, array, backend="python", errors="warn", ulp=4, scale=1e3)


@pytest.mark.parametrize("seed", every(8, range(100)))
def test_what_is_computed_of_assigned_parts_is_numpys(seed: int) -> None:
    """Parts that are written over each other, in whatever order."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 6, random.integers(1, 3)).tolist())
    array = np.asarray(random.normal(size=shape), order=random.choice(["C", "F"]))
    places = [tuple(slice(*sorted(random.integers(0, n + 1, 2).tolist())) for n in shape)
              for _ in range(3)]  # fmt: skip
    cut = tuple(slice(random.integers(0, 2), n) for n in shape)

    def function(a: Any) -> Any:
        first, second = a * 2, np.gradient(a, axis=0)
        for place in places:
            first[place] = a[place] + 1
            second[place[:1]] = a[place[:1]] * 3
        found = first * second - a
        return found[cut] + 1, first, abs(second)[cut][:1], found

    check(function, array, backend="python", errors="warn")


def test_an_array_that_is_changed_in_place_is_not_the_one_it_was_made_of() -> None:
    def function(a: Any) -> Any:
        first = np.gradient(a, axis=0)
        second = first * 2
        first += 1
        second -= first
        return first, second, np.gradient(a, axis=1) * second

    check(function, RANDOM.normal(size=(5, 6)), backend="python", errors="warn")


def test_a_gradient_of_two_elements_has_no_inside() -> None:
    check(lambda a: np.gradient(a, axis=0), np.array([[1.0, 5.0], [7.0, 2.0]]), backend="python")


def test_a_part_that_has_been_computed_is_copied() -> None:
    def function(a: Any) -> Any:
        recorder = a._recorder
        recorder._limit = 1  # so that each operation is computed at once
        return np.gradient(a, axis=0)

    array = RANDOM.normal(size=(6, 3))
    found = record(function, array, backend="python")
    np.testing.assert_array_equal(found.result, np.gradient(array, axis=0))


@pytest.mark.parametrize("call", [
    lambda a: np.gradient(a, np.arange(3.0), axis=0),
    lambda a: np.gradient(a, 1, 2, 3),
    lambda a: np.gradient(a, axis=0, edge_order=3),
    lambda a: np.gradient(a, axis=5),
])  # fmt: skip
def test_errors_are_numpys(call: Any) -> None:
    check_error(call, np.ones((4, 5)))


def test_what_has_no_kernel_is_numpys() -> None:
    days = np.arange(5).astype("M8[D]")
    found = record(lambda a: np.gradient(a, days.astype("m8[D]"), axis=0), np.ones((5, 3)),
                   backend="python")  # fmt: skip
    assert [reason.kind for _, reason in found.recorder.breaks] == [GraphBreak.OPERAND]


@pytest.mark.parametrize("seed", every(8, range(200)))
def test_slices_of_gradients_are_numpys(seed: int) -> None:
    """What is between the ends is computed without them; anything else as a whole, as before."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(3, 7, random.integers(1, 4)).tolist())
    array = random.normal(size=shape)
    array[random.random(shape) < 0.1] = random.choice([np.nan, np.inf, -np.inf, 1e308, -0.0])
    with np.errstate(all="ignore"):
        array = array.astype(random.choice(["f8", "f4", "i4", "c16"]))
    array = np.asarray(array, order=random.choice(["C", "F"]))
    axis, order = int(random.integers(len(shape))), int(random.integers(1, 3))
    step = [(), (0.3,), (np.arange(shape[axis]) ** 1.5,)][random.integers(3)]

    def index() -> Any:
        ends = random.integers(-3, 5, (2, len(shape)))
        found = [slice(int(a) if a > -3 else None, int(b) if b < 4 else None,
                       random.choice([1, 1, 1, -1])) for a, b in ends.T]  # fmt: skip
        return tuple(found[: random.integers(1, len(shape) + 1)])

    first, second = index(), index()
    kind = random.integers(5)

    def function(a: Any) -> Any:
        found = np.gradient(a, *step, axis=axis, edge_order=order)
        if kind == 0:
            return found[first]
        if kind == 1:
            return found[first] * 2, found[second], found
        if kind == 2:
            return found[first].T, found[first] + found.size
        if kind == 3:
            found += 1
            return found[first][..., :1]
        part = found[first]
        return part.max() if part.size else found.T

    check(function, array, backend="python", errors="warn")


def test_what_is_between_the_ends_is_one_kernel() -> None:
    found = check(lambda a: np.gradient(a, axis=0)[1:-1], RANDOM.normal(size=(6, 5)),
                  backend="python")  # fmt: skip
    assert [type(step) for step in found.launches] == [Launch]
    found = check(lambda a: np.gradient(a, axis=0)[:-1], RANDOM.normal(size=(6, 5)),
                  backend="python")  # fmt: skip
    assert [type(step) for step in found.launches] == [PartLaunch] * 2
