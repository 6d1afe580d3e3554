"""`numpy.select`, with the choices and conditions that it takes, and those that it refuses."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from tests.record.recording import assert_same, check, record

DTYPES = ["f8", "f4", "f2", "i8", "i4", "u1", "?", "c16", "c8", ">f8", "<U3", "i2"]
NUMBERS = [0, 1, -1, 0.5, np.nan, 300, True, np.float32(2), np.int8(3), 1j, -0.0, 2**40, np.inf,
           2**63, 2**70]  # fmt: skip


def array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = rng.standard_normal(shape) * 5
    if dtype == "?":
        return np.asarray(values > 0)
    found = np.asarray(abs(values) if dtype == "u1" else values).astype(dtype)
    if found.dtype.kind in "fc" and found.size > 2:
        found.flat[:2] = [np.nan, -0.0]
    return np.asfortranarray(found) if rng.random() < 0.2 else found


def programs(rng: np.random.Generator) -> tuple[Any, list[np.ndarray]]:
    """Return a random call of `numpy.select`, and the arrays that it is given."""
    shape = tuple(rng.integers(rng.random() > 0.1, 6, rng.integers(0, 3)).tolist())

    def part() -> tuple[int, ...]:
        first = int(bool(shape) and rng.random() < 0.15)
        return tuple(1 if rng.random() < 0.2 else length for length in shape)[first:]

    def number() -> Any:
        return NUMBERS[rng.integers(len(NUMBERS))]

    often = DTYPES[rng.integers(len(DTYPES))]
    several = int(rng.integers(1, 4))
    given: list[Any] = [array(rng, part(), "?" if rng.random() > 0.02 else "i4")
                        for _ in range(several)]  # fmt: skip
    for chance in [0.35] * several + [0.7]:
        dtype = often if rng.random() < 0.5 else DTYPES[rng.integers(len(DTYPES))]
        given.append(number() if rng.random() < chance else array(rng, part(), dtype))
    arrays = [each for each in given if isinstance(each, np.ndarray)]

    def function(*chunks: Any) -> Any:
        places = count()
        values = [chunks[next(places)] if isinstance(v, np.ndarray) else v for v in given]
        return np.select(values[:several], values[several:-1], values[-1])

    return function, arrays


@pytest.mark.parametrize("seed", range(10))
def test_random_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fused = 0
    for _ in range(25):
        function, arrays = programs(rng)
        with np.errstate(all="ignore"):
            try:
                expected = function(*arrays)
            except (TypeError, OverflowError) as error:
                with pytest.raises(type(error)):
                    record(function, *arrays, backend="python")
                continue
            found = record(function, *arrays, backend="python")
            for result in (found.result, found.run(*arrays)):
                if expected.dtype.kind == "f":
                    assert_same(result, expected)
                else:
                    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
                    np.testing.assert_array_equal(result, expected)
        fused += bool(found.launches)
    assert fused > 5


def test_choices_are_one_kernel() -> None:
    def chosen(x: Any) -> Any:
        return np.select([x < -1, x < 0, x > 1], [x * 2, -1, np.sqrt(abs(x))], np.nan) + 1

    found = check(chosen, np.random.default_rng(0).standard_normal((30, 40)))
    assert len(found.launches) == 1


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "?"])
def test_piecewise_numbers(dtype: str) -> None:
    x = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
    if dtype[0] == "f":
        x[1, :3] = np.nan, -0.0, np.inf
    for numbers in ([1, 0], [2.5, -0.0, True], [np.nan, 3, 4]):
        if dtype[0] != "f" and np.nan in numbers:
            continue
        if dtype == "u1" and numbers[1] < 0:
            numbers = [1, 2]
        found = check(
            lambda x, n=numbers: np.piecewise(np.maximum(x, x), [x > 2, x >= 4], n),
            x, backend="python",
        )  # fmt: skip
        assert len(found.launches) == 1
        assert not found.recorder.breaks


def test_other_pieces_are_numpy_s() -> None:
    x = np.arange(12.0) - 5
    for program in (
        lambda x: np.piecewise(x * 1, [x < 0], [lambda v: v.sum(), 1]),
        lambda x: np.piecewise(x * 1, [x < 0, x > 2], [np.negative, np.square, 3]),
        lambda x: np.piecewise(x * 1, x < 0, [2, 1]),
    ):
        found = record(program, x, backend="python")
        assert_same(found.result, program(x))
        assert found.recorder.breaks
    with pytest.raises(ValueError, match="functions are expected"):
        record(lambda x: np.piecewise(x * 1, [x < 0], [1, 2, 3]), x, backend="python")
    with pytest.raises(IndexError):
        record(lambda x: np.piecewise(x * 1, [], []), x, backend="python")
