"""NumPy's functions in Python, recorded by their own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnrecordableError
from gpusched.record.handlers import HANDLERS
from gpusched.record.written import _FUNCTIONS
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import assert_same, check, record

Function = Callable[..., Any]

WEIGHTS = np.linspace(0.5, 2, 6)
FUNCTIONS: dict[str, Function] = {
    "append": lambda x: np.append(x * 2, x[:2], axis=0) + x[:1],
    "array_split": lambda x: np.array_split(x * 2, 4)[1] + x[:2],
    "average": lambda x: np.average(x, axis=0, weights=WEIGHTS),
    "average_of_all": lambda x: np.average(x),
    "average_with_weights": lambda x: np.average(x, axis=1, weights=WEIGHTS[:5], returned=True),
    "column_stack": lambda x: np.column_stack([x[0], x[1] * 2]) * 2,
    "cumulative_prod": lambda x: np.cumulative_prod(x / 4, axis=1) * 2.0,
    "cumulative_sum": lambda x: np.cumulative_sum(x * 2, axis=0, include_initial=True),
    "dsplit": lambda x: np.dsplit(x[:, :, None] * 2, 1)[0],
    "dstack": lambda x: np.dstack([x, x * 2]) * 2,
    "hsplit": lambda x: np.hsplit(x * 2, [2])[1],
    "hstack": lambda x: np.hstack([x, x * 2]) * 2,
    "isneginf": lambda x: np.isneginf(x + 0.5),
    "isposinf": lambda x: np.isposinf(x + 0.5),
    "linalg.matrix_transpose": lambda x: np.linalg.matrix_transpose(x * 2),
    "linalg.outer": lambda x: np.linalg.outer(x[0] * 2, x[1]),
    "matrix_transpose": lambda x: np.matrix_transpose(x * 2),
    "norm": lambda x: np.linalg.norm(x, axis=0),
    "norm_1": lambda x: np.linalg.norm(x, 1, axis=1),
    "norm_inf": lambda x: np.linalg.norm(x, np.inf, axis=1),
    "outer": lambda x: np.outer(x[:2] * 2, x[1]),
    "polyval": lambda x: np.polyval([1, -2, 3], x),
    "ptp": lambda x: np.ptp(x * 2, axis=0),
    "ptp_kept": lambda x: np.ptp(x * 2, axis=1, keepdims=True),
    "rot90": lambda x: np.rot90(x * 2, k=3),
    "sinc": lambda x: np.sinc(x),
    "split": lambda x: np.split(x * 2, 2)[1],
    "trapezoid": lambda x: np.trapezoid(x * 2, dx=0.5),
    "trapezoid_at": lambda x: np.trapezoid(x, np.array([0.0, 1, 3, 4, 9, 11]), axis=0),
    "tril": lambda x: np.tril(x * 2),
    "triu": lambda x: np.triu(x * 2, 1),
    "unstack": lambda x: np.unstack(x * 2, axis=1)[3],
    "unwrap": lambda x: np.unwrap(x),
    "unwrap_by": lambda x: np.unwrap(x * 2, period=4, axis=0),
    "vsplit": lambda x: np.vsplit(x * 2, 3)[0],
    "vstack": lambda x: np.vstack([x, x * 2]) * 2,
}


def numbers(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(3)
    found = random.integers(-12, 12, shape or (6, 5)) / (4 if dtype[0] == "f" else 1)
    return abs(found).astype(dtype) if dtype in ("u1", "?") else found.astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_numpy_s(name: str) -> None:
    function = FUNCTIONS[name]
    for dtype in ("f4", "f8"):
        found = check(function, numbers(dtype), backend="python", ulp=8, scale=4)
        assert found.launches
        assert not [each for each, _ in found.recorder.breaks if each in HANDLERS]
    for dtype in ("?", "i1", "u1", "i4", "i8", "f2"):
        x = numbers(dtype)
        try:
            expected = function(x)
        except (OverflowError, TypeError) as error:  # of truth values, and of -2 as a uint8
            with pytest.raises(type(error)):
                record(function, x, backend="python")
            continue
        exact = 8 if dtype != "f2" else 40
        assert_same(record(function, x, backend="python").result, expected, exact, 4)


def test_numbers_of_a_function_s_own_are_weights() -> None:
    check(lambda x: np.average(x * 2, axis=1, weights=np.arange(5)), numbers("f8"),
          backend="python", ulp=8)  # fmt: skip


@pytest.mark.parametrize("name", ["sinc", "isneginf", "isposinf", "tril", "unwrap", "ptp"])
def test_special_numbers_are_numpy_s(name: str) -> None:
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.5, 3.0, -3.25, 1e300, -1e300, 5e-324]
    for x in (np.array(special).reshape(3, 4), np.array(special[:9], "f4").reshape(3, 3)):
        check(FUNCTIONS[name], x, backend="python", ulp=8)


def test_differences_of_half_a_period_keep_their_sign() -> None:
    for x in (np.array([0.0, np.pi, 0.0, -np.pi, 2 * np.pi]), np.array([0, 2, 0, -2, 4, 3])):
        check(lambda x: np.unwrap(x, period=4), x, backend="python")
        check(lambda x: np.unwrap(x, discont=1.0), x + 0.0, backend="python", ulp=4, scale=4)


def test_numbers_are_rounded_towards_zero() -> None:
    x = np.array([0.5, -0.5, 1.5, -2.5, -0.0, np.nan, np.inf])
    assert check(lambda x: np.fix(x * 3), x, backend="python").launches
    check(lambda x: np.fix(x), numbers("i4"), backend="python")


def test_arrays_in_other_orders_and_of_no_elements() -> None:
    for name, function in FUNCTIONS.items():
        check(function, np.asfortranarray(numbers("f8")), backend="python", ulp=8, scale=4)
        check(function, numbers("f8", 12, 10)[::2, ::-2], backend="python", ulp=8, scale=4)
        if name in ("sinc", "tril", "isposinf"):
            check(function, numbers("f8", 0, 5), backend="python")


def test_what_they_do_besides_is_left_to_numpy() -> None:
    x = numbers("f8")
    for function in (
        lambda x: np.linalg.norm(x),
        lambda x: np.sinc(x * 1j),
        lambda x: np.average(x, weights=x + 9, axis=0),
    ):
        found = record(function, x, backend="python")
        assert_same(found.result, function(x), 4)
        assert [name for name, _ in found.recorder.breaks if name in ("average", "norm", "sinc")]
    with pytest.raises(UnrecordableError, match="out="):
        record(lambda x: np.isposinf(x, out=np.ones(x.shape, bool)), x, backend="python")


def test_their_errors_are_numpy_s() -> None:
    with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
        record(lambda x: np.average(x, axis=0, weights=np.zeros(6)), numbers("f8"))
    with pytest.raises(ValueError, match="axis"):
        record(lambda x: np.sinc(x) + np.ptp(x, axis=5), numbers("f8"))


def test_each_is_a_function_of_numpy_s_in_python() -> None:
    assert all(hasattr(function, "__wrapped__") for function in _FUNCTIONS)


@pytest.fixture
def fused() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        yield


def test_chunks_and_users_functions_are_fused(fused: None) -> None:
    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))

    def block(a: Any) -> Any:
        return np.trapezoid(np.unwrap(a * 2, axis=0), axis=1)

    for program, launches in (
        ((x / 3).map_blocks(np.sinc, dtype=float) + 1, 2),
        (x.map_blocks(block, dtype=float, drop_axis=1), None),
    ):
        with gpusched.disable():
            expected = program.compute(scheduler="sync")
        reset_statistics()
        np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-12)
        assert statistics().launches
        assert launches in (None, statistics().launches)
        assert not {why.kind for _, why in statistics().breaks} - {GraphBreak.ALONE}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "name"), list(product(range(40), FUNCTIONS)))
def test_random_arrays(seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    dtype = random.choice(["f2", "f4", "f8", "i1", "i2", "i4", "i8"])
    x = (random.normal(size=(6, 5)) * 10 ** random.integers(0, 2)).astype(dtype)
    if x.dtype.kind == "f":
        x[random.random(x.shape) < 0.1] = random.choice([np.nan, np.inf, -0.0])
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x)
        found = record(FUNCTIONS[name], x, backend="python").result
    assert_same(found, expected, 100 if dtype == "f2" else 16, 100)
