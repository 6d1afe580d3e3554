"""NumPy's floating-point warnings and errors from fused tasks, as plain dask has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched import enable
from gpusched.emit.operations import OPERATIONS
from tests.emit.test_operations import CASES, fuses, operands, ufunc_of
from tests.tiers import exhaustive

SETTINGS = {"gpusched.fusion.minimum-elements": 1, "gpusched.fusion.minimum-operations": 1}


def outcome(compute: Callable[[], Any]) -> tuple[Any, list[tuple[str, str]]]:
    """Return a result, or the error, and what was warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            result = compute()
        except FloatingPointError as error:
            result = str(error)
    return result, sorted((each.category.__name__, str(each.message)) for each in found)


STATES: tuple[dict[str, Any], ...] = ({}, {"all": "raise"}, {"all": "ignore"})


def same(x: da.Array, states: tuple[dict[str, Any], ...] = STATES, fused: bool = True) -> None:
    """Assert that a computation gives what plain dask gives, warnings and errors included."""
    for state in states:
        with np.errstate(**state):
            expected, told = outcome(lambda: x.compute(scheduler="sync"))
        for _ in range(2):  # Recorded, and from the plan.
            before = gpusched.statistics().launches
            with np.errstate(**state), dask.config.set(SETTINGS), enable():
                result, found = outcome(lambda: x.compute(scheduler="sync"))
            assert not fused or gpusched.statistics().launches > before
            assert found == told, state
            assert type(result) is type(expected)
            if isinstance(expected, str):
                # Calls that do not need each other may come in another order.
                assert result == expected or result in outcome_texts(x)
            else:
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(result, expected, rtol=1e-5, equal_nan=True)


def outcome_texts(x: da.Array) -> list[str]:
    """Return what plain dask warns of where it raises no error."""
    with np.errstate(all="warn"):
        return [text for _, text in outcome(lambda: x.compute(scheduler="sync"))[1]]


def chunk(values: Any, dtype: Any = float) -> da.Array:
    array = np.asarray(values, dtype)
    return da.from_array(array, chunks=array.shape)


NAMES = [
    (name, dtype)
    for name, dtype in CASES
    if fuses(name, dtype) and dtype in ("int32", "float64")
    and np.dtype(dtype).kind in OPERATIONS[name].reports
    and getattr(ufunc_of(name), "nout", 1) == 1 and hasattr(da, name)
]  # fmt: skip


@pytest.mark.parametrize("state", [{"all": "warn"}, *exhaustive({})], ids=str)
@pytest.mark.parametrize(("name", "dtype"), NAMES)
def test_operation_reports_what_numpy_reports(name: str, dtype: str, state: dict[str, Any]) -> None:
    arrays = [da.from_array(a, chunks=a.shape) for a in operands(name, dtype)]
    same(getattr(da, name)(*arrays), (state,))


X = [1.0, 2.0, 0.0, -1.0, 4.0, 1e308, np.nan, np.inf, 5e-310, 3.0]
PROGRAMS: dict[str, Callable[[da.Array], da.Array]] = {
    "where": lambda x: da.where(x == 0, 0.0, 1 / x),
    "sum of quotients": lambda x: (1 / x).sum(),
    "compared": lambda x: (1 / x > 0.5) & (x * 10 > 3),
    "several": lambda x: da.log(x) + da.sqrt(x) * da.exp(x * 1000),
    "overflowing sum": lambda x: da.where(x > 0, x, 1e308).sum(),
    "overflowing product": lambda x: (x * 2).prod(),
    "float32": lambda x: (x * 2).astype("f4") * 3,
    "cast": lambda x: (x * 3).astype("i2"),
    "power": lambda x: (x - 3) ** 0.5 + x**-1.0,
    "mean": lambda x: (x * 2).mean(),
    "variance": lambda x: (x * 2).var(),
    "largest": lambda x: (x / 0).max(),
    "rounded": lambda x: da.round(x * 1.5, 20),
    "nothing wrong": lambda x: abs(x) + da.minimum(x, 3),
    "all nan": lambda x: da.nanmax(x * np.nan, axis=0),
    "mod": lambda x: (x + 1) % (x - 1),
    "divmod": lambda x: da.divmod(x, x - 1)[0] + 1,
    "clip": lambda x: da.clip(1 / x, 0, 2),
    "integers": lambda x: da.where(x > 2, x, 0).astype("i4") // 0,
    "tiny": lambda x: x * 1e-308 * 1e-10,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("state", [{}, *exhaustive({"all": "raise"}, {"all": "ignore"})], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_reports_what_numpy_reports(name: str, state: dict[str, Any]) -> None:
    same(PROGRAMS[name](chunk(X)), (state,))


@pytest.mark.parametrize("name", ["several", "sum of quotients", "integers", "variance"])
def test_program_of_each_kind_in_every_state(name: str) -> None:
    same(PROGRAMS[name](chunk(X)))


REDUCTIONS = ["sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "nansum", "nanprod",
              "nanmin", "nanmax", "nanmean", "nanstd", "nanvar"]  # fmt: skip


@pytest.mark.parametrize("axis", [0, *exhaustive(None, 1)])
@pytest.mark.parametrize("dtype", [*exhaustive("float32"), "float64"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_reports_what_numpy_reports(name: str, dtype: str, axis: int | None) -> None:
    large = np.finfo(dtype).max
    for values in (
        [large, large, -1.0, 3.0],
        [np.inf, -np.inf, 1, 2],
        [np.nan, 1, 2, 3],
        [1.0] * 4,
    ):
        x = chunk(np.array([values, values[::-1], values]), dtype)
        same(getattr(da, name)(x * 1, axis=axis), STATES[:1])


@pytest.mark.usefixtures("everything_fused")
def test_extremes_over_no_axes_warn_of_nothing() -> None:
    """dask leaves NumPy's warning out while it computes a chunk: a plan runs after that."""
    x = da.from_array(np.array([[np.nan, 1.0], [2, np.nan]]), chunks=(1, 2))
    with warnings.catch_warnings(action="error"), gpusched.enable():
        found = da.nanmax(x * 2, axis=()).compute(scheduler="sync")
    np.testing.assert_array_equal(found, x * 2)


def silent(block: Any) -> Any:
    with np.errstate(divide="ignore"):
        first = 1 / block
    return first + np.log(block)


def raising(block: Any) -> Any:
    with np.errstate(all="raise"):
        return 1 / block + 1


def clean(block: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log(block) + 1 / block


@pytest.mark.parametrize("function", [silent, raising, clean])
def test_what_a_function_says_of_errors_holds_in_it(function: Callable[..., Any]) -> None:
    same(chunk([1.0, 0.0, 3.0] * 40).map_blocks(function, dtype=float))


def ignored(block: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.log(block - 3) + 1 / block


def loses_imaginary_parts(block: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (block * 2j + block).astype(float) + 1


def warns_by_itself(block: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.nanmean(np.where(block == 3.0, np.nan, block)[2::3] * 2, axis=0) + block


@pytest.mark.parametrize("function", [ignored, loses_imaginary_parts, warns_by_itself])
def test_functions_that_ignore_warnings_run_as_they_are(function: Callable[..., Any]) -> None:
    x = chunk([1.0, 0.0, 3.0] * 40).map_blocks(function, dtype=float, meta=np.empty(0))
    same(x, fused=False)


def checked(block: Any) -> Any:
    with np.errstate(all="raise"):
        _ = 1 / block
    return block * 2 + 1


def left(block: Any) -> Any:
    _ = np.log(block - 1).sum() / 0
    return block * 2 + 1


def half(block: Any) -> Any:
    return np.divmod(block, 0)[1] + 1


def checked_of_more(block: Any) -> Any:
    with np.errstate(all="raise"):
        found = 1 / block
    return found[2::3] * 2


@pytest.mark.parametrize("function", [checked, checked_of_more, left, half])
def test_values_that_a_function_does_not_use_are_reported(function: Callable[..., Any]) -> None:
    same(chunk([1.0, 0.0, 3.0] * 40).map_blocks(function, dtype=float, meta=np.empty(0)))


def quotient_of_lengths(block: Any) -> Any:
    return block * 2 + np.float64(block.ndim) / np.float64(0)


def too_large(block: Any) -> Any:
    return block * 2 + np.float32(3e38) * np.float32(block.ndim * 4)


def quietly_viewed(x: Any) -> Any:
    found = 1 / x
    with np.errstate(all="ignore"):
        return found[::2] * 2


def quiet_least(x: Any) -> Any:
    found = 1 / x.min(axis=0)
    with np.errstate(all="ignore"):
        return found[None] * 2


def viewed_of_quiet(x: Any) -> Any:
    with np.errstate(all="ignore"):
        found = x / x.min(axis=0)
    return found[:, ::-1]


def shown_by_nothing(x: Any) -> Any:
    (x / x.min(axis=0))[:1]
    np.expand_dims(x.var(axis=0), 0)
    return x + 1


@pytest.mark.parametrize(
    "function", [quietly_viewed, quiet_least, viewed_of_quiet, shown_by_nothing]
)
def test_views_report_what_their_arrays_do(function: Callable[..., Any]) -> None:
    for values in ([[1.0, 0, 2, 3], [3, 0, np.inf, 0]], [[1.0, 2, 2, 3], [3, 1, 2, 5]]):
        same(chunk(values, "f8").map_blocks(function, meta=np.empty((0, 0))))


@pytest.mark.parametrize("function", [quotient_of_lengths, too_large])
def test_numbers_that_a_function_computes_are_reported_for_each_run(
    function: Callable[..., Any],
) -> None:
    same(chunk([1.0, 2.0] * 40).map_blocks(function, dtype=float, meta=np.empty(0)))


def test_warnings_as_errors() -> None:
    x = chunk([1.0, 0.0, 3.0] * 40)
    with warnings.catch_warnings(), dask.config.set(SETTINGS), enable():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(RuntimeWarning, match="divide by zero encountered in log"):
                (da.log(x) + 1).compute(scheduler="sync")


def test_state_of_the_whole_process() -> None:
    x = chunk([1.0, 0.0, 3.0] * 40)
    before = np.seterr(all="raise")
    try:
        with dask.config.set(SETTINGS), enable(), pytest.raises(FloatingPointError, match="divide"):
            (1 / x + 1).compute(scheduler="sync")
    finally:
        np.seterr(**before)


def test_underflow_between_zero_and_a_constant() -> None:
    x = chunk([0.0, 0.0, 3.0] * 40)
    same(da.nextafter(x, 1.0) + x, ({"under": "warn"},))


def test_overflow_of_weak_scalars() -> None:
    same(chunk([1, 2, 3], "f4") * 1e300 + 1, fused=False)
    same(chunk([1, 2, 3], "f4") > 1e300, fused=False)


def test_threads_have_errors_of_their_own() -> None:
    x = da.from_array(np.r_[np.ones(50_000), np.zeros(50_000)], chunks=25_000)
    with dask.config.set(SETTINGS), enable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = gpusched.statistics().repeats
        (1 / x + 1).compute(scheduler="threads", num_workers=4)
    assert gpusched.statistics().repeats == before + 2


def test_chunks_of_ordinary_data_are_not_repeated() -> None:
    values = np.random.default_rng(0).normal(size=(200, 300))
    values[::7, ::11] = np.nan
    x = da.from_array(values, chunks=(100, 100))
    with enable():
        before = gpusched.statistics().repeats
        dask.compute(
            da.where(x > 0, x, 0).sum(axis=0) / 2, da.nanmean(x * 2 + 1), da.clip(x, -1, 1) * x,
            da.exp(x) - x, x.mean(axis=1), (x.T * 2).max(), scheduler="sync",
        )  # fmt: skip
        assert gpusched.statistics().repeats == before


BEYOND = {
    "one sign": np.full(6000, 1.7e308),
    "both signs": np.tile([1.7e308, -1.7e308], 3000),
    "squares": np.tile([1e200, -1e200], 3000),
    "one number": np.concatenate([np.ones(5999), [1.7e308]]),
    "nothing": np.ones(0),
}
"""Numbers whose variances float64 cannot hold, or that have none."""


@pytest.mark.parametrize("chunks", [6000, 3000])
@pytest.mark.parametrize("name", BEYOND)
def test_variances_beyond_the_largest_number(name: str, chunks: int) -> None:
    x = da.from_array(BEYOND[name], chunks=chunks)
    for least in (1, 4096):  # Fused, and with the functions called as they are.
        for array in (x.var(), x.std(), x.std(ddof=1)):
            expected = outcome(lambda array=array: array.compute(scheduler="sync"))
            with dask.config.set({"gpusched.fusion.minimum-elements": least}), enable():
                found = outcome(lambda array=array: array.compute(scheduler="sync"))
            np.testing.assert_equal(found[0], expected[0])
            assert {text for _, text in found[1]} == {text for _, text in expected[1]}


def test_divisions_by_booleans() -> None:
    for shape in ((), (5000,)):
        x = da.from_array(np.zeros(shape, bool), chunks=2500)
        same(1 / x)
        same(1 / x * 2)


@pytest.mark.parametrize("value", [np.nan, 300.7])
def test_a_fill_value_that_is_no_integer_is_converted_as_numpy_does(value: float) -> None:
    x = da.from_array(np.arange(8, dtype="i1"), chunks=4)
    filled = x.map_blocks(lambda b: np.full_like(b, value) * 2 + b, meta=np.array([], "i1"))
    same(filled, ({}, {"all": "ignore"}), fused=False)


def of_items(x: Any) -> Any:
    first, second, third = x
    return x * 0 + first * second - abs(third) + sum(x)


def test_overflow_of_integers_that_are_scalars() -> None:
    """NumPy reports it of its scalars, and not of integers in arrays."""
    for values in ([100, 100, -128], [1, 2, 3]):
        found = da.map_blocks(of_items, chunk(values, "i1"), dtype="i1", meta=np.empty(0, "i1"))
        same(found)
