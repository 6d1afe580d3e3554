"""Arrays that are rolled are read where they are, with NumPy's values, dtypes and orders."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

from gpusched.plan.expression import UnrecordableError
from tests.record.recording import record
from tests.tiers import every

DTYPES = ["f8", "f4", "i4", "u1", "?", "c16", "f2"]


def any_array(draw: random.Random) -> np.ndarray:
    shape = draw.choice([(5,), (4, 6), (1, 5), (3, 4, 2), (2, 2), (0, 3)])
    values = np.random.default_rng(draw.randrange(1 << 30)).normal(size=shape) * 4
    array = values.astype(draw.choice(DTYPES))
    return draw.choice([lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: a.T])(array)


def any_roll(draw: random.Random, ndim: int) -> Any:
    axis = draw.randrange(-ndim, ndim)
    shift = draw.randrange(-7, 8)
    kind = draw.random()
    if kind < 0.1:
        return lambda a: np.roll(a, shift)
    if kind < 0.3:
        axes = tuple(draw.choice(range(ndim)) for _ in range(2))
        return lambda a: np.roll(a, (shift, 1), axes)
    if kind < 0.35:
        return lambda a: np.roll(a, np.int64(shift), axis)
    return lambda a: np.roll(a, shift, axis)


def any_function(draw: random.Random, ndim: int) -> Any:
    rolls = [any_roll(draw, ndim) for _ in range(3)]
    before = draw.choice([lambda x: x, lambda x: x + x, lambda x: abs(x), lambda x: x[..., ::-1]])
    join = draw.choice([np.add, np.subtract, np.maximum, np.multiply, np.equal])
    ending = draw.randrange(6)

    def function(x: Any) -> Any:
        y = before(x)
        z = join(join(rolls[0](y), y), rolls[1](y) if ending % 2 else rolls[2](rolls[1](y)))
        if ending == 0:
            out = rolls[2](y)
            out += out
            return out, z
        if ending == 1:
            out = rolls[0](y)
            out[..., :1] = y[..., -1:]
            return out, z, y
        if ending == 2:
            return z.sum(axis=0), rolls[0](y), y
        if ending == 3:
            return rolls[0](z)[..., 1:], rolls[0](rolls[1](y)).cumsum(axis=-1)
        return z, rolls[2](z.astype("f8")) * 2

    return function


def outcome(function: Any, x: np.ndarray) -> Any:
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        try:
            return function(x)
        except (TypeError, ValueError, UnrecordableError) as error:
            return type(error)


@pytest.mark.parametrize("seed", every(8, range(32)))
def test_any_rolls_are_numpys(seed: int) -> None:
    for k in range(40):
        draw = random.Random(f"{seed}-{k}")
        x = any_array(draw)
        function = any_function(draw, x.ndim)
        expected = outcome(function, x.copy(order="K"))
        if isinstance(expected, type):
            continue
        found = outcome(lambda x, f=function: record(f, x, backend="python").result, x)
        if found is UnrecordableError:
            continue
        assert not isinstance(found, type)
        for ours, numpys in zip(found, expected, strict=True):
            assert ours.dtype == numpys.dtype and ours.shape == numpys.shape
            rtol = 1e-2 if numpys.dtype == "f2" else 16 * np.finfo("f4").eps  # of sums
            with warnings.catch_warnings(action="ignore"):
                np.testing.assert_allclose(
                    ours, numpys, rtol=rtol, atol=100 * rtol, err_msg=f"{seed}-{k}"
                )


def test_a_stencil_reads_and_writes_arrays_once() -> None:
    def stencil(a: Any) -> Any:
        return (a + np.roll(a, 1, 0) + np.roll(a, -1, 0)) / 3

    x = np.random.default_rng(0).normal(size=(8, 5))
    done = record(stencil, x, backend="python")
    np.testing.assert_allclose(done.result, stencil(x), rtol=1e-15)
    assert len(done.plan.launches) == 3  # The first row, the last one, and what is between them.
