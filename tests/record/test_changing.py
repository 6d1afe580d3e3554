"""Calls that write to an array: ``out=``, ``where=``, `numpy.copyto` and the like."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature
from itertools import product
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.record.catalogue import has

VALUES = np.random.default_rng(11).normal(size=(12, 7)).round(1)
VALUES[2] = -1.0
Block = Any


def quotient(b: Block) -> Any:
    return np.divide(b - 0.5, b + 0.5, out=np.zeros_like(b), where=b != -0.5) + 1


def logarithm(b: Block) -> Any:
    return np.log(b, out=np.full_like(b, -9), where=b > 0) * 2


def twice_into_one(b: Block) -> Any:
    y = np.empty_like(b)
    np.multiply(b, 2, out=y)
    np.add(y, b, out=y)
    return y + 1


def by_a_row(b: Block) -> Any:
    y = np.zeros_like(b)
    np.add(b[0], 1, out=y, where=b[1] > 0)
    return y * b


def the_same_array(b: Block) -> Any:
    y = b * 2
    z = np.add(b, 1, out=y)
    z += 1
    return y + z


def in_float32(b: Block) -> Any:
    y = np.zeros(b.shape, np.float32)
    np.floor(b, out=y, where=b >= 0)
    return y * 2


def of_integers(b: Block) -> Any:
    whole = (b * 10).astype(np.int32)
    y = np.zeros_like(whole)
    np.floor_divide(whole, whole - 3, out=y, where=whole != 3)
    return y + 1.0


def clipped(b: Block) -> Any:
    return np.clip(b * 2, 0, 1, out=np.empty_like(b)) + 1


def summed(b: Block) -> Any:
    y = np.empty(b.shape[0])
    np.max(b * 2, axis=1, out=y)
    return y[:, None] * b


def running(b: Block) -> Any:
    y = b * 2
    np.cumsum(y, axis=1, out=y)
    y += 1
    return y


def copied(b: Block) -> Any:
    y = np.empty_like(b)
    np.copyto(y, b)
    y += 1
    np.copyto(y, b[0], where=b > 0.5)
    return y * 2


def masked(b: Block) -> Any:
    y = b * 2
    np.copyto(y, 0, where=y > 0.5)
    np.putmask(y, y < 0, y - 1)
    return y + 1


def filled(b: Block) -> Any:
    y = np.empty_like(b)
    y.fill(3)
    return y + b


KERNELS: dict[str, Callable[[Block], Any]] = {
    each.__name__: each
    for each in (quotient, logarithm, twice_into_one, by_a_row, the_same_array, in_float32,
                 of_integers, clipped, summed, running, copied, masked, filled)
}  # fmt: skip
"""What is kernels alone."""


def repeated(b: Block) -> Any:
    y = b * 2
    np.putmask(y, y > 0.5, [1.0, 2.0, 3.0])
    return y + 1


def placed(b: Block) -> Any:
    y = b * 2
    np.place(y, y > 0.5, [1.0, 2.0])
    return y + 1


def put(b: Block) -> Any:
    y = b * 2
    np.put(y, [1, 5], 9.0)
    y -= 1
    return y


def along(b: Block) -> Any:
    y = b * 2
    np.put_along_axis(y, np.argmax(b, axis=1)[:, None], -5.0, axis=1)
    return y * 2


def diagonal(b: Block) -> Any:
    y = b * 2
    np.fill_diagonal(y, 0)
    return y + b


def ordered(b: Block) -> Any:
    y = b * 2
    y.sort(axis=0)
    y.partition(3, axis=1)
    y += 1
    return y * b


CALLS = {each.__name__: each for each in (repeated, placed, put, along, diagonal, ordered)}
"""What calls NumPy on a copy of the array, between kernels."""


def turned(b: Block) -> Any:
    y = b * 2
    view = np.transpose(y)
    np.add(b, 1, out=y)
    return y + view.T


def given(b: Block) -> Any:
    np.multiply(b, 2, out=b)
    return b + 1


def copied_to_what_is_given(b: Block) -> Any:
    np.copyto(b, 1)
    return b + 1


def sorts_what_is_given(b: Block) -> Any:
    b.sort(axis=0)
    return b + 1


def rolled(b: Block) -> Any:
    y = b * 2
    np.concatenate([y[1:], y[:1]], out=y)
    return y + 1


def ranges(b: Block) -> Any:
    y = b * 2
    np.ptp(y, axis=0, out=y[0])
    return y + 1


def products(b: Block) -> Any:
    y = b[:1] * 2
    np.vecdot(y, y, out=y)
    return y + b


def own_diagonal(b: Block) -> Any:
    y = b * 2
    np.fill_diagonal(y, y[:, 1])
    return y + 1


def own_places(b: Block) -> Any:
    y = b * 2
    np.place(y, y > 0, y[1])
    return y + 1


REFUSED: dict[str, tuple[Callable[[Block], Any], str]] = {
    each.__name__: (each, told)
    for each, told in (
        (turned, "changes a chunk in place"),
        (given, "calls multiply with out="),
        (copied_to_what_is_given, "calls copyto of an array that is not new"),
        (sorts_what_is_given, "changes by sort what others may see"),
        (rolled, "calls concatenate, which writes to what it reads"),
        (ranges, "calls ptp, which writes to what it reads"),
        (products, "calls vecdot, which writes to what it reads"),
        (own_diagonal, "calls fill_diagonal, which writes to what it reads"),
        (own_places, "calls place, which writes to what it reads"),
    )
}

PLACES: dict[str, Callable[[Block], Any]] = {
    "sum": lambda b: np.sum(b * 2, axis=1, where=b > 0.5)[:, None] + b,
    "method": lambda b: (b * 2).sum(axis=1, where=b > 0.5)[:, None] + b,
    "all": lambda b: np.sum(b * 2, where=b > 0.5) + b,
    "start": lambda b: np.sum(b * 2, axis=1, initial=3.5)[:, None] + b,
    "product": lambda b: np.prod(b, axis=1, where=b > 0.5, keepdims=True) + b,
    "largest": lambda b: np.max(b * 2, axis=1, where=b > 0.5, initial=-1)[:, None] + b,
    "at least": lambda b: np.max(b * 2, axis=1, initial=0.0)[:, None] + b,
    "least": lambda b: (b * 2).min(initial=0.0) + b,
    "any": lambda b: np.any(b * 2 > 1, axis=1, where=b < 0.7)[:, None] + b,
    "every": lambda b: np.all(b * 2, axis=1, where=b < 0.7)[:, None] + b,
    "mean": lambda b: np.mean(b * 2, axis=1, where=b > -9, keepdims=True) + b,
    "mean of none": lambda b: np.mean(b * 2, axis=1, where=b > 0, keepdims=True) + b,
    "of integers": lambda b: np.mean((b * 9).astype("i4"), axis=1, where=b > -2)[:, None] + b,
    "a row": lambda b: np.sum(b * 2, axis=1, where=b[0] > 0.1)[:, None] + b,
    "a constant": lambda b: np.sum(b * 2, axis=1, where=np.arange(7) > 4)[:, None] + b,
    "reduce": lambda b: np.add.reduce(b * 2, axis=1, where=b > 0, initial=2)[:, None] + b,
    "of whole numbers": lambda b: np.max((b * 9).astype("i4"), axis=1, initial=3)[:, None] + b,
}


def computed(function: Callable[[Block], Any]) -> tuple[gpusched.Statistics, list[str]]:
    """Return the counts and the warnings of a function, whose values are plain dask's."""
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    kept = VALUES.copy()
    x = da.from_array(VALUES, chunks=(6, 7))
    program = (x * 2 - 1).map_blocks(function, dtype=float, meta=np.empty((0, 0))) * 2
    with warnings.catch_warnings(record=True) as told, gpusched.disable():
        warnings.simplefilter("always")
        wanted = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set(settings):
        explained = gpusched.explain(program).totals.launches
        gpusched.reset_statistics()
        for _ in range(2):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                value = program.compute(scheduler="sync")
            assert value.dtype == wanted.dtype
            np.testing.assert_allclose(value, wanted, rtol=1e-14)
            assert {str(each.message) for each in found} == {str(each.message) for each in told}
    np.testing.assert_array_equal(VALUES, kept)
    counts = gpusched.statistics()
    assert counts.launches == 2 * explained
    return counts, [str(each.message) for each in found]


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_written_by_kernels(name: str) -> None:
    counts, told = computed(KERNELS[name])
    assert not counts.breaks
    assert not told, "where= computes nothing that is reported"


@pytest.mark.parametrize("name", CALLS)
def test_what_numpy_writes_to_a_copy(name: str) -> None:
    counts, _ = computed(CALLS[name])
    assert {told.kind for _, told in counts.breaks} == {GraphBreak.NO_KERNEL}


@pytest.mark.parametrize("name", REFUSED)
def test_what_others_see_is_not_changed(name: str) -> None:
    function, told = REFUSED[name]
    counts, _ = computed(function)
    assert any(told in reason for _, reason in counts.breaks), counts.breaks


@pytest.mark.parametrize("name", PLACES)
def test_reductions_of_some_elements_and_from_a_number(name: str) -> None:
    counts, _ = computed(PLACES[name])
    assert not counts.breaks


ERRORS: list[tuple[Callable[[Block, Block], Any], type[Exception]]] = [
    (lambda b, y: np.add(b, 1, out=np.zeros(3)), ValueError),
    (lambda b, y: np.add(b, 1.5, out=np.zeros(b.shape, int)), TypeError),
    (lambda b, y: np.max(b * 2, axis=1, where=b > 0), ValueError),
    (lambda b, y: np.sum(b, axis=0, out=y), ValueError),
    (lambda b, y: np.cumsum(b[0], out=y), ValueError),
    (lambda b, y: np.matmul(b[:1], b.T[:, :1], out=y[:1]), ValueError),
    (lambda b, y: np.putmask(y, b > 0, b * 1j), TypeError),
    (lambda b, y: np.putmask(y, b > 0, b.astype(np.clongdouble)), TypeError),
    (lambda b, y: y.fill(b[:1]), ValueError),
    (lambda b, y: y[0].sort(axis=None), TypeError),
    (lambda b, y: y[0].partition(1, axis=None), TypeError),
]
"""What NumPy refuses to write to an array."""


@pytest.mark.parametrize("place", range(len(ERRORS)))
def test_errors_are_numpys(place: int) -> None:
    call, kind = ERRORS[place]

    def function(b: Block) -> Any:
        y = b * 2
        call(b, y)
        return y + 1

    x = da.from_array(VALUES, chunks=(6, 7))
    program = x.map_blocks(function, dtype=float, meta=np.empty((0, 0)))
    told = []
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    for manager in (gpusched.disable, gpusched.enable):
        with manager(), dask.config.set(settings), pytest.raises(kind) as error:
            program.compute(scheduler="sync")
        told.append(str(error.value))
    assert told[0] == told[1]


SHOWN: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda y: y, lambda y: y[0], lambda y: y[-1], lambda y: y[:, 0], lambda y: y[:, -1],
    lambda y: y[::-1], lambda y: y[1:], lambda y: y[:-1],
]  # fmt: skip


def given_parts(y: np.ndarray) -> list[Any]:
    """Return parts of an array, and lists of these, for functions to read."""
    return [y, y[::-1], y.T, y[1:], y[:-1], [y[1:], y[:1]], [y[-1], *y[:-1]]]


OPTIONS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((), {"axis": 0}), ((), {"axis": -1}), (([2, 1, 0],), {"axis": 0}), ((2,), {}),
    ((50,), {"axis": 0}), ((np.ones((3, 3), int),), {}),
]  # fmt: skip


def writes_early(function: Callable[..., Any]) -> bool:
    """Return whether what a function writes depends on when it reads what it writes to."""
    kinds: list[Any] = [float, np.int64]
    numbers = np.arange(9).reshape(3, 3) * 7 % 5
    for dtype, k, shown, (args, names) in product(kinds, range(7), SHOWN, OPTIONS):
        written, apart = numbers.astype(dtype), numbers.astype(dtype)
        try:
            function(given_parts(written)[k], *args, **names, out=shown(written))
            function(given_parts(apart.copy())[k], *args, **names, out=shown(apart))
        except (TypeError, ValueError, LookupError, ArithmeticError):
            continue
        if not np.array_equal(written, apart):
            return True
    return False


def test_what_writes_before_it_has_read_is_known() -> None:
    with warnings.catch_warnings(action="ignore"):
        found = [
            function
            for function in vars(np).values()
            if callable(function)
            and not isinstance(function, np.ufunc | type)
            and has(function, "pure")
            and "out" in signature(function).parameters
            and not has(function, "early")
            and writes_early(function)
        ]
    assert not found
    assert has(np.concatenate, "early") == writes_early(np.concatenate)
