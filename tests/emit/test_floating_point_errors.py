"""Floating-point errors: what NumPy would report of a value, a kernel's run finds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from gpusched.backends import primitives, python
from gpusched.emit.floatingpoint import DIVIDE, HAS_FLAGS, INVALID, OVERFLOW, UNDERFLOW, take
from gpusched.emit.operations import OPERATIONS, has
from tests.emit.test_operations import CASES, fuses, operands, ufunc_of
from tests.record.recording import record
from tests.tiers import every, exhaustive

FILLING = {"f": 0.5, "i": 1, "u": 1, "b": True}
"""A value that no operation finds fault with, by kind of dtype."""
NUMBER = 131
"""Elements: some vectors, and some more."""


def reported(function: Callable[..., Any], *arrays: np.ndarray) -> list[str]:
    """Return what NumPy says of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*arrays)
    return sorted({str(each.message) for each in found})


def errors_of(recording: Any, *arrays: np.ndarray) -> int:
    """Return the errors that the kernels of a plan find."""
    take()
    recording.plan.run(arrays)
    return take()


def arrays_of(given: list[np.ndarray], k: int) -> list[np.ndarray]:
    """Return operands with one sample in the midst, and one at the end."""
    found = []
    for samples in given:
        array = np.full(NUMBER, FILLING[samples.dtype.kind], samples.dtype)
        array[[17, -1]] = samples[k]
        found.append(array)
    return found


FUSED = [
    (name, dtype)
    for name, dtype in CASES
    if fuses(name, dtype) and np.dtype(dtype).kind in OPERATIONS[name].reports
]


@pytest.mark.parametrize("source", ["float32", *exhaustive("float64")])
@pytest.mark.parametrize("target", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_conversions_to_integers_are_compiled_with_their_test(source: str, target: str) -> None:
    found = record(lambda x: (x + 1).astype(target), np.array([3.0] * 20, source))
    assert errors_of(found, np.array([3.0] * 20, source)) == 0
    assert errors_of(found, np.array([3.0] * 19 + [1e30], source)) & INVALID


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(n, d, marks=() if d in ("int32", "float64") else pytest.mark.exhaustive)
        for n, d in FUSED
    ],
)
def test_every_error_that_numpy_reports_is_found(name: str, dtype: str) -> None:
    ufunc, samples = ufunc_of(name), operands(name, dtype)
    missed, needless = [], []
    with np.errstate(all="warn"):
        recording = record(lambda *a: ufunc(*a), *arrays_of(samples, 0))
        assert recording.launches
        for k in range(len(samples[0])):
            arrays = arrays_of(samples, k)
            told = reported(ufunc, *arrays)
            found = errors_of(recording, *arrays)
            # Functions may underflow on the way to a result that shows nothing of it.
            inside = OPERATIONS[name].heavy and all("underflow" in each for each in told)
            # NumPy's own power of float32 reports errors of exact results.
            infinite = name == "power" and np.isinf(arrays[1]).any()
            # Those that overflow do so of infinity, too: docs/explanation/floating-point.md.
            beyond = has(name, "overflows") and any(np.isinf(a).any() for a in arrays)
            if told and not found and not inside and not infinite:
                missed.append(([a[-1] for a in arrays], told))
            elif found & ~UNDERFLOW and not told and not beyond:
                needless.append(([a[-1] for a in arrays], found))
    assert not missed, missed[:5]
    assert len(needless) <= 0.1 * len(samples[0]), needless


def rounded(x: Any) -> Any:
    """Return numbers that are beyond float32 where x is 0, rounded to it."""
    return (1.5 + 1e39 * (1.5 - x.astype("f8"))).astype("f4")


CALLS: dict[str, tuple[Callable[..., Any], int]] = {
    "where hides": (lambda x: np.where(x == 0, 0.0, 1 / x) * 2, DIVIDE),
    "comparison hides": (lambda x: 1 / x > 3, DIVIDE),
    "maximum": (lambda x: np.maximum(1 / x, 0) + 1, DIVIDE),
    "clip": (lambda x: np.clip(1 / x, 0, 1), DIVIDE),
    "floor": (lambda x: np.floor(1 / x), DIVIDE),
    "sum": (lambda x: (1 / x).sum(), DIVIDE),
    "columns": (lambda x: (1 / x).reshape(-1, 1).sum(axis=0), DIVIDE),
    "largest": (lambda x: (1 / x).max(), DIVIDE),
    "exponential": (lambda x: np.exp(1 / x) * 0, DIVIDE),
    "sign": (lambda x: np.sign(np.log(x)), DIVIDE),
    "two arms": (lambda x: np.where(x > -1, x / x, 2 / x), INVALID),
    "truth": (lambda x: (np.sqrt(x - 1) != 0).any(), INVALID),
    "cast": (lambda x: (1 / x).astype("i2"), DIVIDE),
    "function hides": (lambda x: np.where(x > 0, np.log(rounded(x)), 0), OVERFLOW),
    "sign only": (lambda x: np.copysign(1, rounded(x)), OVERFLOW),
    "next": (lambda x: np.nextafter(np.where(x == 0, np.finfo(x.dtype).max, x), np.inf), OVERFLOW),
}


@pytest.mark.parametrize("position", [0, 3, NUMBER // 2, NUMBER - 2, NUMBER - 1])
@pytest.mark.parametrize("dtype", [*exhaustive("float32"), "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_found_wherever_it_is(name: str, dtype: str, position: int) -> None:
    call, wanted = CALLS[name]
    values = np.full(NUMBER, 1.5, dtype)
    recording = record(call, values)
    assert errors_of(recording, values) == 0
    values[position] = 0
    assert errors_of(recording, values) & wanted


def no_bits(x: Any) -> Any:
    return x & ~x


def nothing(x: Any) -> Any:
    return np.maximum(x, x) - x


@pytest.mark.parametrize("call", [
    lambda x: (1 / x) ** 0,
    lambda x: 1.0 ** (1 / x),
    lambda x: np.maximum(1 / x, math.nan),
    lambda x: np.clip(1 / x, math.nan, 1),
    lambda x: (1 / x).astype("i8") * 0,
    lambda x: no_bits((1 / x).astype("i8")),
    lambda x: nothing((1 / x).astype("i8")),
    lambda x: np.hypot(1 / x, math.inf),
    lambda x: np.fmin(1 / x, -math.inf),
])  # fmt: skip
def test_an_error_is_found_where_the_result_is_known(call: Callable[..., Any]) -> None:
    values = np.full(NUMBER, 1.5)
    values[NUMBER // 2] = 0
    with np.errstate(invalid="ignore"):  # of the conversion, which is tested itself
        recording = record(call, values)
    assert errors_of(recording, values) & DIVIDE


@pytest.mark.parametrize("dtype", [*exhaustive("float32"), "float64"])
@pytest.mark.parametrize("call", [
    lambda x: np.where(x > 0.5, x, 1) * x,
    lambda x: np.clip(x, 0.1, 0.9) * x + np.minimum(x, 0.5),
    lambda x: np.where(np.isnan(x), 0, x).sum(),
    lambda x: (x.sum(), x.max(), np.nanmin(x)),
    lambda x: (x / 3).reshape(-1, 1).sum(axis=0),
    lambda x: np.exp(x) * np.log(x) + np.sin(x) / np.arctan2(x, x) + x**2.5,
    lambda x: np.sign(x) * x + x % 0.3 + (x >= 0.25) * x,
    lambda x: np.hypot(x, x) + np.tanh(x) * np.cbrt(x) + np.expm1(x),
    lambda x: np.isfinite(x) * x + np.heaviside(x, 0.5) * x,
    lambda x: np.round(x, 2),
])  # fmt: skip
def test_ordinary_numbers_and_nan_raise_nothing(call: Callable[..., Any], dtype: str) -> None:
    values = np.linspace(0.01, 0.99, NUMBER).astype(dtype)
    recording = record(call, values)
    assert errors_of(recording, values) == 0
    values[[5, -1]] = np.nan
    assert errors_of(recording, values) == 0


def test_what_is_ignored_where_it_is_recorded_is_not_looked_for() -> None:
    values = np.zeros(NUMBER)

    def partly(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / x

    recording = record(partly, values)
    assert recording.launches[0].kernel.kernel.flags == INVALID | OVERFLOW
    assert errors_of(recording, values) == 0
    with np.errstate(all="ignore"):
        recording = record(lambda x: np.log(x) + 1 / x, values)
    assert not recording.launches[0].kernel.kernel.checked


def test_operations_without_errors_have_no_checks() -> None:
    recording = record(lambda x: np.where(x > 1, np.floor(-x), np.clip(x, 0, 1)), np.ones(NUMBER))
    assert not recording.launches[0].kernel.kernel.checked


def test_each_operation_says_what_it_reports() -> None:
    known = {"invalid", "divide", "over", "under"}
    for operation in OPERATIONS.values():
        for kind, errors in operation.reports.items():
            assert set(errors.split()) <= known
            assert kind in operation.templates[0]


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_plain_python_finds_the_same(backend: str) -> None:
    values = np.full(20, 1.5)
    recording = record(lambda x: np.where(x == 0, 0, 1 / x) + np.sqrt(x), values, backend=backend)
    assert errors_of(recording, values) == 0
    values[7] = 0
    assert errors_of(recording, values) & DIVIDE
    values[7] = -1
    assert errors_of(recording, values) & INVALID


KINDS = [0.0, -1.5, 1e38, -1e-45, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_result_is_worse_than_an_operand(dtype: str) -> None:
    numbers = np.array(KINDS, dtype)

    @numba.njit
    def of_all(numbers: np.ndarray) -> list[bool]:
        return [primitives.is_worse(x, y) for x in numbers for y in numbers]

    order = [int(np.isinf(x)) + 2 * int(np.isnan(x)) for x in numbers]
    expected = [x > y for x in order for y in order]
    assert of_all(numbers) == expected
    assert [python.is_worse(x, y) for x in numbers for y in numbers] == expected


OVERFLOWING = [name for name in OPERATIONS if has(name, "overflows")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", every(3, OVERFLOWING))
def test_functions_that_overflow_raise_no_other_error(name: str, dtype: str) -> None:
    function, rng = getattr(np, name), np.random.default_rng(0)
    whole = dtype.replace("float", "uint")
    given = []
    with np.errstate(all="ignore"):
        for _ in range(function.nin):
            numbers = rng.integers(0, np.iinfo(whole).max, 20_000, whole, endpoint=True).view(dtype)
            near = rng.uniform(-800, 800, numbers.shape).astype(dtype)
            given.append(np.where(rng.random(numbers.shape) < 0.5, numbers, near))
        finite = np.isfinite([*given, function(*given)]).all(axis=0)
    arrays = [array[finite] for array in given]
    assert len(arrays[0]) > 5000
    recording = record(function, *arrays)
    assert errors_of(recording, *arrays) == 0
    if name in ("exp", "exp2", "expm1"):  # such as of what a mask leaves out
        arrays[0][::7] = -np.inf
        assert errors_of(recording, *arrays) == 0


def shown_by_flags(call: Callable[..., Any], dtype: str = "float64") -> list[bool]:
    """Return of each statement that a kernel tests whether flags show its errors."""
    (launch,) = record(call, np.full(NUMBER, 1.5, dtype)).launches
    return [test.shown for test in launch.kernel.kernel.tests]


@pytest.mark.skipif(not HAS_FLAGS, reason="a processor without flags")
def test_flags_show_what_arithmetic_raises() -> None:
    assert shown_by_flags(lambda x: np.exp(x * 2) / x + np.hypot(x, 1)) == []
    assert shown_by_flags(lambda x: (x * 2 + 1).max()) == []
    # Computed for each element, though that may not matter.
    assert shown_by_flags(lambda x: np.where(x > 1, x * 2 + 1, 0)) == [True]
    assert shown_by_flags(lambda x: np.where(x > 1, np.degrees(np.arctan(x / 3)) + 360, 0)) == [
        True
    ]
    assert shown_by_flags(lambda x: np.log(x) * 2 > 3) == [False, True]
    assert shown_by_flags(lambda x: x * 2 + 1, "float16") == [False, False]


UNARY: list[Callable[..., Any]] = [
    np.exp, np.log, np.sqrt, np.sin, np.tanh, np.arctan, np.negative, np.abs, np.degrees, np.expm1,
    np.log1p, np.square, np.floor, np.arccos, np.sinh, np.sign, np.cbrt, lambda x: x * 0.3,
    lambda x: x + 1, lambda x: 1 / x, lambda x: np.clip(x, -1, 1), lambda x: x.astype("f4") * 2,
    np.nan_to_num, lambda x: x.astype("f2"), lambda x: x.astype("i4") / 3, lambda x: abs(x + 2j),
    lambda x: np.fmin(x, math.inf), lambda x: np.copysign(2, x),
]  # fmt: skip
BINARY: list[Callable[..., Any]] = [
    np.add, np.subtract, np.multiply, np.divide, np.arctan2, np.hypot, np.maximum, np.fmin,
    lambda a, b: np.where(a > b, a, b), lambda a, b: np.where(np.isnan(a), 0, b), np.remainder,
    np.logaddexp, lambda a, b: np.where(a > b, np.log(a - b), 0), np.fmax, np.floor_divide,
]  # fmt: skip
ENDS: list[Callable[..., Any]] = [
    lambda a, b: a, lambda a, b: np.where(a > 0, a, 0), lambda a, b: (a > b, a),
    lambda a, b: np.maximum(a, b).max(), lambda a, b: np.maximum.accumulate(a * b),
    lambda a, b: (a.reshape(-1, 1) + b[:1]).max(axis=0), lambda a, b: np.cumsum(a),
    lambda a, b: (np.nanmin(a), a.max()), lambda a, b: (a.argmax(), np.fmax.reduce(a)),
]  # fmt: skip
SUMS: list[Callable[..., Any]] = [
    lambda a, b: np.where(np.isnan(a), 0, a).sum(), lambda a, b: (np.nanmin(a), a.mean()),
    lambda a, b: (a * b).reshape(-1, 1).sum(axis=0),
]  # fmt: skip
"""What adds its terms in any order."""
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e30, 1e300, 1e-30]


def program(rng: np.random.Generator) -> tuple[Callable[..., Any], bool]:
    """Return a function of two arrays, and whether it adds up their elements.

    It consists of some operations, each on the result of the one before.
    """
    chosen = [(int(rng.integers(len(UNARY))), int(rng.integers(len(BINARY))), rng.random(2))
              for _ in range(rng.integers(2, 6))]  # fmt: skip
    end = int(rng.integers(len(ENDS + SUMS)))
    state: dict[str, Any] = [{}, {}, {"divide": "ignore"}, {"invalid": "ignore"}][rng.integers(4)]

    def call(x: Any, y: Any) -> Any:
        values = [x, y]
        with np.errstate(**state):
            for one, two, (kind, place) in chosen:
                a, b = values[-1], values[int(len(values) * place)]
                values.append(UNARY[one](a) if kind < 0.5 else BINARY[two](a, b))
            return (ENDS + SUMS)[end](values[-1], y)

    return call, end >= len(ENDS)


def samples(rng: np.random.Generator, dtype: str, number: int = NUMBER) -> np.ndarray:
    """Return ordinary numbers, and a few that are not."""
    found = rng.uniform(0.1, 3, number)
    for _ in range(rng.integers(3)):
        found[rng.integers(number)] = rng.choice(SPECIAL)
    if rng.random() < 0.3:
        found[rng.random(number) < 0.3] = math.nan
    with np.errstate(all="ignore"):
        return found.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float16", "float64")])
@pytest.mark.parametrize("seed", [0, 1, *exhaustive(*range(2, 60))])
def test_whatever_numpy_reports_of_a_program_is_found(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    (call, sums), number = program(rng), int(rng.integers(1, 68))
    step = int(rng.choice([-1, 1, 2]))

    def drawn() -> tuple[np.ndarray, ...]:
        return tuple(samples(rng, dtype, number * abs(step))[::step] for _ in range(2))

    recording = record(call, *drawn())
    with np.errstate(all="ignore"):
        unchecked = record(call, *drawn())
    for _ in range(60):
        arrays = drawn()
        told, found = reported(call, *arrays), errors_of(recording, *arrays)
        # Sums may overflow in one order of their terms, and not in another.
        assert found or not told or (sums and "in reduce" in told[0]), (arrays, told)
        if not sums:
            np.testing.assert_array_equal(recording.run(*arrays), unchecked.run(*arrays))


def division_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that divides one by a function's results."""

    def divided(*arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            found = function(*arrays)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(1 / result for result in results)

    return divided


@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float64")])
@pytest.mark.parametrize("name", ["exp", "sinh", *exhaustive("exp2", "expm1", "cosh")])
def test_overflows_of_constants_are_found(name: str, dtype: str) -> None:
    function = getattr(np, name)
    for call in (
        lambda x: function(np.where(x > 0, 2000, x)),
        lambda x: function(np.clip(x, 0, 2000) * 3),
        lambda x: np.where(function(np.maximum(x, -1000) * 2) > 1, 1, 0),
        lambda x: (function(x * 1000) > 3, function(np.sign(x) * 1000).max()),
    ):
        assert_reported(call, operands("positive", dtype))


def assert_reported(function: Callable[..., Any], samples: list[np.ndarray]) -> None:
    """Assert that errors are found in every array in which NumPy reports some."""
    missed = []
    recording = record(function, *arrays_of(samples, 0))
    for k in range(len(samples[0])):
        arrays = arrays_of(samples, k)
        told = reported(function, *arrays)
        if told and not errors_of(recording, *arrays):
            missed.append(([a[-1] for a in arrays], told))
    assert not missed, missed[:5]


CHOICES: dict[str, tuple[Callable[..., Any], str]] = {
    "numbers": (lambda x: np.where(x > 0, 0.0, 2.0), "float64"),
    "a number": (lambda x: np.where(x > 0, x, 0.0), "float32"),
    "twice": (lambda x: np.where(x > 0, np.where(x > 1, 0.0, x), 2.0) * 3, "float64"),
    "minimum": (lambda x: np.minimum(x, 0), "float64"),
    "maximum": (lambda x: np.maximum(x, 0), "float32"),
    "fmin": (lambda x: np.fmin(x, 0), "float64"),
    "clip": (lambda x: np.clip(x, 0, 1), "float64"),
    "clip to one": (lambda x: np.clip(x, 0, 0), "float32"),
    "nan_to_num": (np.nan_to_num, "float64"),
    "booleans": (lambda x: x > 0, "float64"),
    "converted": (lambda x: (x > 0).astype("float32") - 1, "float32"),
    "of booleans": (lambda x: x * 1.0, "bool"),
    "sign": (lambda x: np.sign(x) * 2, "float64"),
    "shift": (lambda x: x << 60, "int64"),
}
"""Operations with few results, or with results that are constants, and dtypes of what they take."""


@pytest.mark.parametrize("name", CHOICES)
def test_errors_of_what_the_compiler_may_know_are_found(name: str) -> None:
    function, dtype = CHOICES[name]
    assert_reported(
        division_by(function), operands("positive" if dtype != "bool" else "invert", dtype)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "dtype"), [(n, d) for n, d in CASES if fuses(n, d) and n != "power"]
)
def test_errors_of_divisions_by_every_operations_results_are_found(name: str, dtype: str) -> None:
    assert_reported(division_by(ufunc_of(name)), operands(name, dtype))
