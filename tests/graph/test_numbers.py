"""Users' functions that make arrays of numbers, which no chunk decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph import disable, enable
from tests.graph.examining import assert_numpys, why_unsafe

pytestmark = pytest.mark.usefixtures("everything_fused")

VALUES = np.arange(24.0).reshape(4, 6) - 7.25

SAFE: dict[str, Callable[..., Any]] = {
    "ones": lambda x: x * np.ones(3) + 1,
    "zeros": lambda x: np.maximum(x, np.zeros(x.shape)),
    "full": lambda x: x - np.full((2, 3), 2.5),
    "arange": lambda x: x + np.arange(x.shape[1]),
    "array": lambda x: np.array([0.5, 1, 2]) * x,
    "rows": lambda x: x + np.array([[1.0, 2, 3], [4, 5, 6]]),
    "integers": lambda x: x * np.asarray([1, 2, 3], dtype="i2"),
    "no axes": lambda x: x.astype("f4") * np.array(2.0),
    "made of others": lambda x: np.exp(-x * (1 / np.linspace(1, 2, 3) ** 2)),
    "division by zero": lambda x: x * (1 / np.array([0.0, 1, 2])),
}


@pytest.mark.parametrize("name", SAFE)
def test_they_are_recorded(name: str) -> None:
    function = SAFE[name]
    assert why_unsafe(function) is None
    x = da.from_array(VALUES, chunks=(2, 3), name=False)
    mapped = x.map_blocks(function)
    with np.errstate(divide="ignore", invalid="ignore"):
        with disable():
            expected = mapped.compute(scheduler="sync")
        for _ in range(2):
            with dask.config.set({"gpusched.fusion.compile": "wait"}):
                found = mapped.compute(scheduler="sync")
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-14)


def changes(x: Any) -> Any:
    k = np.arange(4.0)
    k += 1
    return x * k


def changes_elements(x: Any) -> Any:
    k = np.arange(4.0)
    k[0] = 2
    return x * k


def changes_between(x: Any) -> Any:
    k, n = np.arange(4.0), [0, 1]
    y = x * k + np.take(x, n, axis=1)[:, :1]
    k += 1
    n[0] = 3
    z = np.clip(x, k, k + 2) + x[:, n][:, :1] + np.searchsorted(k, x)
    k *= 7
    return y - z


def of_one_of_two(x: Any) -> Any:
    k = np.arange(3.0) if x.shape[0] > 7 else x
    return k


STOPS: dict[str, Callable[..., Any]] = {
    "returns a ndarray": lambda x: np.arange(3.0),
    "returns a tuple": lambda x: (x + 1, np.arange(3.0)),
    "calls full with other arguments": lambda x: x + np.full(3, x.max()),
    "makes an array of arrays": lambda x: np.array([x, 1]) + 1,
    "calls ones with other arguments": lambda x: x + np.ones(3, like=x),
}


@pytest.mark.parametrize("reason", STOPS)
def test_what_ends_the_recording(reason: str) -> None:
    """Results have to be another array for each chunk, and plans hold theirs."""
    assert_numpys(STOPS[reason], reason)


NUMPYS = [changes, changes_elements, of_one_of_two, changes_between,
          lambda x: sum(k * x for k in np.arange(4.0))]  # fmt: skip


@pytest.mark.parametrize("function", NUMPYS)
def test_what_changes_them_is_recorded(function: Callable[..., Any]) -> None:
    assert_numpys(function)


def test_what_is_not_recorded() -> None:
    assert why_unsafe(lambda x: np.add(np.arange(3.0), x, np.arange(3.0))) is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x * 0 + n, n * np.ones(3))[1][None],
        lambda x, n: (x * 0 + n, np.array([n, n, n]))[1][None],
        lambda x, n: (x * 0 + n, np.array(n))[1] * np.ones((1, 3)),
        lambda x, n: (x * 0 + n, np.full((1, 3), 2.0))[1] + np.asarray(n) - n,
    ],
)
def test_an_array_that_turns_out_to_be_of_numbers_is_another_one_for_each_chunk(
    function: Callable[..., Any],
) -> None:
    """What a task is given may be a number, which nobody knows before it is there."""
    x = da.from_array(VALUES, chunks=(2, 3), name=False)
    mapped = x.map_blocks(function, dask.delayed(2.0))
    kept = mapped.persist(scheduler="sync").to_delayed().ravel()
    chunks = dask.compute(*kept, scheduler="sync")
    assert len({id(chunk) for chunk in chunks}) == len(chunks)
    assert not any(np.shares_memory(chunks[0], chunk) for chunk in chunks[1:])
    np.testing.assert_array_equal(chunks[0], [[2.0, 2, 2]])


SECOND = np.timedelta64(1, "s")


def in_seconds(x: Any, time: Any) -> Any:
    return x * 2 + time / SECOND


def with_sign(x: Any, number: float) -> Any:
    return np.copysign(x, number) * 2


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (in_seconds, [np.timedelta64(5, unit) for unit in "smh"]),
        (with_sign, [0.0, -0.0, 0, False]),
    ],
)
def test_numbers_of_one_text_or_the_same_bytes_are_different(function: Any, numbers: Any) -> None:
    x = da.ones((4, 4), chunks=2) + 1
    arrays = [x.map_blocks(function, number, meta=np.empty((0, 0))) for number in numbers]
    with enable():
        found = dask.compute(*arrays, scheduler="sync")
    for each, number in zip(found, numbers, strict=True):
        np.testing.assert_array_equal(each, function(np.full((4, 4), 2.0), number))
