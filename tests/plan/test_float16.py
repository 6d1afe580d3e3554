"""float16: kernels convert elements to float32 and round each result, as NumPy's loops do."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends import cpu, elf, native
from gpusched.breaks import GraphBreak
from gpusched.emit import dtypes, hostloops
from gpusched.emit.floatingpoint import DIVIDE, INVALID, OVERFLOW, UNDERFLOW, take
from gpusched.kernels import KernelError
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import assert_same, check, on_host, record
from tests.tiers import every, exhaustive

HALVES = np.arange(1 << 16, dtype="u2").view("f2")
"""Every number there is, every NaN among them."""
ORDINARY = np.random.default_rng(0).normal(scale=40, size=(70, 130)).astype("f2")


def between(dtype: str) -> np.ndarray:
    """Return every float16, the middle of each two neighbours, and what lies beside the middle."""
    finite = np.sort(HALVES[np.isfinite(HALVES)]).astype(dtype)
    middles = np.append((finite[1:] + finite[:-1]) / 2, [65520, -65520]).astype(dtype)
    beside = [np.nextafter(middles, to).astype(dtype) for to in (np.inf, -np.inf)]
    limits = np.finfo(dtype)
    few = [np.nan, np.inf, -np.inf, limits.max, -limits.max, limits.tiny, limits.smallest_subnormal]
    return np.concatenate([HALVES.astype(dtype), middles, *beside, np.array(few, dtype)])


def compiled_anew(function: Callable[..., Any], array: np.ndarray) -> np.ndarray:
    """Return what a kernel gives that is compiled here and now."""
    (launch,) = record(function, array, backend="python").launches
    kernel = launch.kernel.kernel
    code = cpu.compile_code(kernel, hostloops.source(kernel), "<a kernel>")
    assert code is not None
    found = np.empty(array.shape, launch.outputs[0].dtype)
    native.load(code).call(array, found, len(array))
    return found


def test_numba_calls_no_kernel_of_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where machine code is not loaded, NumPy computes, and says why."""
    monkeypatch.setattr(elf, "SUPPORTED", False)
    x = da.from_array(ORDINARY, chunks=(70, 65))
    settings = {"fusion.compile": "wait", "fusion.minimum-elements": 0, "fusion.strict": False}
    reset_statistics()
    with gpusched.enable(), dask.config.set({f"gpusched.{k}": v for k, v in settings.items()}):
        found = (x * 3 - 77).compute(scheduler="sync")
    np.testing.assert_array_equal(found, ORDINARY * 3 - 77)
    assert GraphBreak.COMPILATION in {reason.kind for _, reason in statistics().breaks}


@pytest.mark.parametrize("source", ["f8", *exhaustive("f4")])
def test_numbers_become_the_nearest_float16(source: str) -> None:
    values = between(source)
    with np.errstate(all="ignore"):
        assert_same(compiled_anew(lambda x: x.astype("f2"), values), values.astype("f2"))


@pytest.mark.parametrize("target", ["f4", *exhaustive("f8")])
def test_every_float16_becomes_a_wider_number(target: str) -> None:
    assert_same(compiled_anew(lambda x: x.astype(target), HALVES), HALVES.astype(target))


@pytest.mark.processes
def test_kernels_call_no_conversion_of_llvm_s_runtime_library(tmp_path: Path) -> None:
    """Which a process has that has loaded SciPy, and others end where it is called."""
    script = (
        "import numpy as np, dask.array as da, gpusched\n"
        "x = np.linspace(-200, 200, 1000)\n"
        "def signed(x):\n"
        "    return np.copysign(x, 1 - x).astype('f4').astype('f2')\n"
        "with gpusched.enable(), np.errstate(all='ignore'):\n"
        "    chunk = da.from_array(x, chunks=-1)\n"
        "    found = signed(chunk).compute(scheduler='sync')\n"
        "    (chunk * 2 + 1).compute(scheduler='sync')\n"
        "np.testing.assert_array_equal(found, signed(x))\n"
        "assert gpusched.statistics().fused_tasks == 2\n"
    )
    settings = {"COMPILE": "wait", "COMPILER": "process", "MINIMUM_ELEMENTS": "0",
                "CACHE_DIRECTORY": str(tmp_path)}  # fmt: skip
    environment = {f"DASK_GPUSCHED__FUSION__{name}": value for name, value in settings.items()}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def pairs(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.permutation(HALVES) for _ in range(2)]


BY_ONE = [np.negative, np.absolute, np.square, np.reciprocal, np.sqrt, np.sign, np.floor, np.ceil,
          np.trunc, np.rint, np.isnan, np.isfinite, np.isinf, np.signbit, np.conjugate,
          np.logical_not, np.deg2rad, np.rad2deg]  # fmt: skip
BY_TWO = [np.add, np.subtract, np.multiply, np.divide, np.less, np.equal, np.greater_equal,
          np.minimum, np.maximum, np.fmin, np.fmax, np.copysign, np.fmod, np.heaviside,
          np.floor_divide, np.remainder, np.logical_and]  # fmt: skip


def test_arithmetic_is_numpy_s_to_the_bit() -> None:
    def all_of_one(x: Any) -> Any:
        return tuple(function(x) for function in BY_ONE)

    def all_of_two(x: Any, y: Any) -> Any:
        return tuple(function(x, y) for function in BY_TWO)

    found = check(all_of_one, HALVES)
    assert not found.recorder.breaks
    assert len(found.launches) == 1
    x, y = pairs(1)
    if not on_host():  # A GPU's conversion to float32 gives all NaN one sign, which copysign sees.
        y = np.where(np.isnan(y), np.float16(np.nan), y)
    found = check(all_of_two, x, y)
    assert not found.recorder.breaks
    assert len(found.launches) == 1


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_the_first_of_equal_numbers_is_taken(backend: str) -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0], "f2")

    def extremes(x: Any, y: Any) -> Any:
        return np.minimum(x, y), np.maximum(x, y), np.fmin(x, y), np.fmax(x, y)

    check(extremes, zeros, np.array([-0.0, 0.0, 0.0, -0.0], "f2"), backend=backend)


def test_integers_are_numpy_s_to_the_bit() -> None:
    """Those that no integer can hold, too: NumPy's loops convert one number after the other."""
    found = check(lambda x: tuple(x.astype(code) for code in "?bBhHiIqQ"), HALVES)
    assert len(found.launches) == 1


@pytest.mark.parametrize("code", ["I", *exhaustive(*"bBhHiqQ")])
def test_integers_of_one_dtype_alone_are_numpy_s_too(code: str) -> None:
    """LLVM narrows a conversion that has but one use."""
    check(lambda x: x.astype(code), HALVES)


def test_each_operation_of_a_chain_is_rounded() -> None:
    def chain(x: Any, y: Any) -> Any:
        return (x * y + x) / (y - x * 0.3) - np.sqrt(abs(x * x + y)) * 1.7

    check(chain, *pairs(2))
    check(chain, *pairs(2), backend="python")


FUNCTIONS = [np.exp, np.log, np.sin, np.cos, np.tanh, np.arctan, np.expm1, np.log1p, np.exp2,
             np.cbrt, np.sinh]  # fmt: skip


def test_functions_are_those_of_float32_rounded_once() -> None:
    found = check(lambda x: tuple(function(x) for function in FUNCTIONS), HALVES, ulp=1)
    assert len(found.launches) == 1
    with np.errstate(all="ignore"):
        for function, result in zip(FUNCTIONS, found.result, strict=True):
            expected = function(HALVES)
            same = (result == expected) | np.isnan(expected)
            assert same.mean() > 0.999, function


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1, -1.0, 3, 1.7, np.float16(0.5)])
def test_powers(exponent: Any) -> None:
    check(lambda x: x**exponent, HALVES, ulp=1)
    check(lambda x: np.power(x, exponent), HALVES, ulp=1)


def test_numbers_of_several_dtypes() -> None:
    x, y = ORDINARY[0], np.linspace(-3, 3, 130)
    for other in (y, y.astype("f4"), y.astype("i1"), y.astype("i8"), y > 0):
        found = check(lambda a, b: (a + b, a * b, np.where(b > 0, a, b)), x, other)
        assert not found.recorder.breaks
    check(lambda a: a * 2.1 + np.float16(0.1) - np.float32(0.3) + 1000, x)
    check(lambda a: a + 70000.5 - 1e9, x)  # NumPy's float16 is infinite, with a warning


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: x, "columns": lambda x: x.T, "every other": lambda x: x[::2, ::3],
    "backwards": lambda x: x[::-1, ::-1], "one row": lambda x: np.broadcast_to(x[0], x.shape),
    "a column": lambda x: x[:, :1],
}  # fmt: skip


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("layout", every(3, list(LAYOUTS)))
def test_layouts(layout: str, backend: str) -> None:
    x = LAYOUTS[layout](ORDINARY[:20, :30])
    check(lambda a: (a * 2 - 1, a > 3, a.astype("f4")), x, backend=backend)
    for axis in (None, 0, 1):
        check(lambda a, axis=axis: ((a + 1).max(axis=axis), (a + 1).min(axis=axis)), x,
              backend=backend)  # fmt: skip


@pytest.mark.parametrize("axis", [*exhaustive(None, 0), 1])
def test_sums_are_as_near_as_one_rounding(axis: int | None) -> None:
    """NumPy rounds at each row where it adds rows to each other: its sums are not the measure."""
    for values in (ORDINARY, ORDINARY.T, np.abs(ORDINARY)[::2, ::3]):
        for function in (np.sum, np.nansum):
            found = record(lambda x, f=function: f(x * 1, axis=axis), values).result
            assert found.dtype == np.float16
            exact = values.astype("f8").sum(axis=axis)
            with np.errstate(over="ignore"):
                assert_same(found, exact.astype("f2"), ulp=1, scale=1e-2)


@pytest.mark.parametrize(
    "function", [np.mean, np.nanmax, *exhaustive(np.prod, np.any, np.all, np.nanmin)]
)
def test_other_reductions(function: Callable[..., Any]) -> None:
    values = np.where(abs(ORDINARY[:30, :40]) > 80, np.float16(np.nan), 1 + ORDINARY[:30, :40] / 8)
    for axis in (0, 1, None):
        check(lambda x, axis=axis: function(x * 1, axis=axis), values.astype("f2"), ulp=2, scale=2)


def test_a_mean_is_added_up_in_float32() -> None:
    values = np.full((300, 500), 60000, "f2")
    for axis in (None, 0, 1):
        check(lambda x, axis=axis: np.mean(x, axis=axis), values)


def test_variances_are_numpy_s() -> None:
    """Along rows; of columns NumPy rounds each sum so far, and is further from what is true."""
    small = ORDINARY / np.float16(16)
    for axis in (0, 1):
        found = record(lambda x, axis=axis: np.var(x * 1, axis=axis, ddof=1), small)
        assert not found.recorder.breaks and found.result.dtype == "f2"
        exact = np.var(small.astype("f8"), axis=axis, ddof=1)
        np.testing.assert_allclose(found.result, exact, rtol=3 * 2.0**-11)
    with np.errstate(over="ignore"):  # Squares add up to what no float16 is.
        found = record(lambda x: np.var(x, axis=0), ORDINARY)
        np.testing.assert_array_equal(found.result, np.var(ORDINARY, axis=0))
        assert np.isinf(found.result).any()
    check(lambda x: np.var(x, axis=0, dtype="f4"), ORDINARY, ulp=64)


def errors_of(function: Callable[..., Any], *arrays: np.ndarray) -> int:
    with np.errstate(all="warn"):
        found = record(function, *arrays)
        take()
        found.run(*arrays)
    return take()


def test_errors_that_numpy_reports_are_found() -> None:
    ordinary = np.full(131, 1.5, "f2")
    for place in (0, 64, 130):
        for function, value, wanted in (
            (lambda x: x * x, 300, OVERFLOW),
            (lambda x: x + x, 60000, OVERFLOW),
            (lambda x: x / (x - 1.5), 1.5, 0),
            (lambda x: 1 / x, 0, DIVIDE),
            (lambda x: np.sqrt(x), -1, INVALID),
            (lambda x: np.exp(x), 20, OVERFLOW),
            (lambda x: x * np.float16(1e-3), 1e-3, UNDERFLOW),
            (lambda x: (x * 1000).max(), 100, OVERFLOW),
            (lambda x: np.where(x > 1e3, x * x, x), 2000, OVERFLOW),
        ):  # fmt: skip
            values = ordinary.copy()
            values[place] = value
            if wanted:
                found = errors_of(function, values)
                assert found & wanted, (value, found)
        assert errors_of(lambda x: np.exp(x * x + x / 3 - np.sqrt(x)), ordinary) == 0


@pytest.mark.parametrize("source", ["f4", "f8", "i4", "i8", "u8"])
def test_casts_report_what_float16_cannot_hold(source: str) -> None:
    values = np.full(131, 2, source)
    assert errors_of(lambda x: x.astype("f2"), values) == 0
    values[70] = 65519
    assert errors_of(lambda x: x.astype("f2"), values) == 0
    values[70] = 65520
    assert errors_of(lambda x: x.astype("f2"), values) & OVERFLOW


def test_sums_that_overflow_are_reported() -> None:
    values = np.full(131, 1000, "f2")
    assert errors_of(lambda x: (x * 1).sum(), values) & OVERFLOW


def test_flags_of_conversions_count_for_nothing() -> None:
    """x86 converts the one element that is wanted, and what is beside it in the register."""

    def total(x: Any) -> Any:
        return np.clip(x * np.float16(1.5) + np.float16(2), -60, 60).sum(axis=0, dtype="f4")

    for seed in range(8):
        values = np.random.default_rng(seed).normal(8, 10, (365, 75)).astype("f2")
        assert not errors_of(total, values) & ~UNDERFLOW
    values[300, 70] = np.inf
    assert not errors_of(total, values) & ~UNDERFLOW
    values[:2, 70] = np.inf, -np.inf
    assert errors_of(lambda x: (x * np.float16(1.5)).sum(axis=0, dtype="f4"), values) & INVALID
    assert errors_of(lambda x: (x.astype("f4") * 1e38).max(), values) & OVERFLOW
    assert errors_of(lambda x: (x.astype("f4") * 1e36).sum(), values) & OVERFLOW


@pytest.fixture
def fused() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        yield


def test_chunks_are_fused(fused: None) -> None:
    x = da.from_array(ORDINARY, chunks=(35, 130))
    program = ((x - x.mean(axis=0)) * 2 + np.sqrt(abs(x))).astype("f4").sum(axis=1)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=2e-3)
    assert statistics().launches == 2
    assert {reason.kind for _, reason in statistics().breaks} <= {GraphBreak.ALONE}


def warnings_of(program: da.Array) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        program.compute(scheduler="sync")
    return [str(each.message) for each in found]


def test_warnings_are_numpy_s(fused: None) -> None:
    x = da.from_array(np.array([300, 2], "f2"), chunks=1)
    program = x * x + 1
    with gpusched.disable():
        expected = warnings_of(program)
    assert expected == ["overflow encountered in multiply"]
    assert warnings_of(program) == expected
    assert statistics().launches == 2


def test_users_own_functions_do_not_declare_it() -> None:
    assert dtypes.HALF in dtypes.SUPPORTED
    assert dtypes.HALF not in dtypes.DECLARABLE
    with pytest.raises(KernelError, match="float16"):
        gpusched.kernel("float16(float16)")(lambda x: x)


def test_what_goes_by_its_bits_is_left_to_numpy() -> None:
    found = check(lambda x, y: np.nextafter(x, y) * 2, *pairs(3))
    assert ("nextafter", "dtype float16") in found.recorder.breaks
