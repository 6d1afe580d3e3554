"""Calls whose number of arguments is not known: ``np.hypot(*np.gradient(x))``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.graph.examining import why_unsafe

TABLE = np.arange(24.0).reshape(4, 6)
PAIR = [TABLE[:2], TABLE[2:]]


@pytest.fixture(autouse=True)
def fused(no_plans: None) -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        yield


def starred(x: Any) -> Any:
    return np.add(*np.stack([x, x + 1, x])) * 2  # Into the last one.


def into_the_table(x: Any) -> Any:
    return np.add(x[:2], *PAIR)


def in_parts(x: Any) -> Any:
    total = 0
    for part in np.gradient(x):
        part += 1
        total = total + part
    return total


RECORDED: list[Callable[[Any], Any]] = [
    starred,
    lambda x: np.hypot(*np.gradient(x * 2)) + 1,
    lambda x: np.hypot(*np.gradient(x * 2)[::-1]) + 1,
    lambda x: np.clip(x, *np.quantile(x, [0.1, 0.9])) * 2,
    lambda x: x.clip(*np.quantile(x, [0.1, 0.9])) * 2,
    lambda x: np.clip(*[x * 2, *np.quantile(x, [0.1, 0.9])]) + 1,
    lambda x: np.ldexp(*np.frexp(x * 3)) + 1,
    lambda x: np.subtract(*np.modf(x), dtype="f4") + 1,
    lambda x: np.multiply.outer(*np.stack([x[0], x[1]])) + 1,
    lambda x: sum(part**2 for part in np.gradient(x)) ** 0.5,
]

IN_PLACE: list[Callable[[Any], Any]] = [
    in_parts,
    lambda x: np.add(*np.modf(x), *np.stack([x, x + 1])[:1]) * 2,
]

UNSAFE: list[Callable[[Any], Any]] = [
    into_the_table,
    lambda x: np.add(*PAIR, x[:2]),
    lambda x: np.add(x, *TABLE),
    lambda x: np.add(*[x, *TABLE]),
    lambda x: np.copyto(*[TABLE, *np.gradient(x)]) or x,
    lambda x: (np.where(x > 1) + (TABLE,))[2].fill(0) or x,  # noqa: RUF005
    lambda x: (np.gradient(x) + (TABLE,))[2].sort() or x,  # noqa: RUF005
    lambda x: TABLE.clip(*np.gradient(x), *PAIR) + x[0, 0],
]


def computed(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return what chunks give with gpusched, and by NumPy; no array of others changes."""
    values = np.random.default_rng(5).normal(size=(8, 6))
    x, before = da.from_array(values.copy(), chunks=(4, 6), asarray=False), TABLE.copy()
    made = x.map_blocks(function, dtype=float, meta=np.ones(()))
    gpusched.reset_statistics()
    found = [each.compute(scheduler="sync") for each in made.blocks]
    expected = [function(part.copy()) for part in (values[:4], values[4:])]
    np.testing.assert_array_equal(TABLE, before)
    return found, expected


@pytest.mark.parametrize("function", RECORDED + IN_PLACE)
def test_arguments_of_a_number_that_is_not_known(function: Callable[[Any], Any]) -> None:
    assert why_unsafe(function) is None
    found, expected = computed(function)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-13, atol=1e-13)
        assert left.dtype == right.dtype


@pytest.mark.parametrize("function", RECORDED)
def test_they_are_recorded(function: Callable[[Any], Any]) -> None:
    computed(function)
    counts = gpusched.statistics()
    assert counts.fused_tasks == 2
    assert not [reason for _, reason in counts.breaks if reason.kind.name.startswith("OWN")]


@pytest.mark.parametrize("function", UNSAFE)
def test_others_may_be_changed(function: Callable[[Any], Any]) -> None:
    assert why_unsafe(function) is not None


def test_a_gradient_is_as_many_calls_as_numpy_makes_of_it() -> None:
    x = da.from_array(np.random.default_rng(0).normal(size=(400, 400)), chunks=400)
    made = x.map_blocks(lambda b: np.hypot(*np.gradient(b * 2)), dtype=float)
    assert gpusched.explain(made).totals.launches == 8
