"""numba's functions of arrays, whose code becomes part of kernels: with numba's dtypes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import dask
import dask.array as da
import numba
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph.functions import known  # noqa: F401  which says what knows numba
from gpusched.kernels.jitted import Jitted
from gpusched.record.catalogue import recorded_form
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import assert_same, check, record

SCALE = 2.5
DTYPES = "f4", "f8", "i8"


@numba.njit
def scaled(x: Any, y: Any) -> Any:
    return (x - y) * SCALE + x / 2.0


@numba.njit
def bent(x: Any, low: Any = 0.25) -> Any:
    return np.where((x > low) & (x < 2), np.sqrt(np.abs(x)), -x * 2.0)


@numba.njit
def of_others(x: Any) -> Any:
    return scaled(x, x * 0.5) + x**2


def numbers(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(0)
    found = random.integers(-9, 9, shape or (40,)) / (4 if dtype[0] == "f" else 1)
    return found.astype(dtype)


def formed(function: Any) -> Jitted:
    found = recorded_form(function)
    assert isinstance(found, Jitted)
    return found


@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("f4", "f8"), ("f4", "f4"), ("i8", "i8")])
def test_numbers_have_numba_s_dtypes(dtypes: tuple[str, str]) -> None:
    x, y = (numbers(d) for d in dtypes)
    found = check(formed(scaled), x, y, backend="python")
    assert len(found.launches) == 1
    assert not found.recorder.breaks


SOURCES = """x + 1|1 - x|x * 2.5|x / 3|1.5 / x|-x|np.abs(x)|x ** 2|x * SCALE|
np.where(x > 0, x, -x)|(x - 1) * (x + 1) / 2|np.sqrt(x)|np.exp(x)|np.log1p(x)|np.floor(x)|
np.isfinite(x)|np.rint(x)|np.arctan(x)|np.pi * x|x + y|x - y|x * y|x / y|x < y|x == y|x != y|
x * y + x / 2 - 1.5|np.maximum(x, y)|np.minimum(x, y)|np.fmax(x, y)|np.fmin(x, y)|
np.arctan2(x, y)|np.copysign(x, y)|np.where(x < y, x * y, y - x)|
np.where((x < 1) & (y > 0) ^ (x == y), x * 1.5, y * 2.5)|x ** 3|x ** -1.0|x ** -2.5|x ** 2 * y|
(x + y) ** 4 * x|x ** 13|x // 3|x % 7|x // -5|x % -4|x // y|x % y|7 // y|-9 % y|
(x * 3 + y) // 7 % 5""".replace("\n", "").split("|")


def made(source: str, **options: Any) -> Any:
    names = {"np": np, "SCALE": SCALE}
    exec(f"def function(x, y): return {source}", names)
    return numba.njit(**options)(names["function"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "dtypes"), list(product(SOURCES, product(DTYPES, DTYPES))))
def test_operations_are_numba_s(source: str, dtypes: tuple[str, str]) -> None:
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40]
    whole = [0, 1, -1, 2**62, -(2**63), 2**63 - 1, 5, 6]
    x, y = (
        np.concatenate([numbers(d), np.array(special if d[0] == "f" else whole, d)]) for d in dtypes
    )
    function = made(source)
    expected = function(x, np.roll(y, 5))
    found = record(formed(function), x, np.roll(y, 5), backend="python").result
    rounded = any(word in source for word in ("exp", "log", "arc", "** -"))
    assert_same(found, expected, 8 if rounded else 0)


def test_arguments_may_be_numbers_named_or_left_out() -> None:
    form, x = formed(bent), numbers("f8")
    for function in (form, lambda x: form(x, 1), lambda x: form(low=0.5, x=x * 2)):
        found = check(function, x, backend="python")
        assert len(found.launches) == 1
        assert not found.recorder.breaks


def test_functions_that_it_calls_are_part_of_the_kernel() -> None:
    found = check(formed(of_others), numbers("f8"), backend="cpu")
    assert len(found.launches) == 1
    assert not found.recorder.breaks


@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "u8", "f2", "c16", ">f8"])
def test_other_dtypes_are_numba_s(dtype: str) -> None:
    if dtype in ("f2", ">f8"):
        x = numbers(dtype)
        with pytest.raises(Exception, match=r"float16|array dtype"):
            record(lambda x: formed(scaled)(x, x), x, backend="python")
        return
    x = numbers(dtype)
    found = record(lambda x: formed(scaled)(x, x) * 2, x, backend="python")
    assert_same(found.result, scaled(x, x) * 2)
    assert [name for name, _ in found.recorder.breaks] == ["scaled"]


def test_scalars_are_numba_s() -> None:
    x = numbers("f8")
    found = record(lambda x: x + formed(scaled)(x[3], x[4]), x, backend="python")
    assert_same(found.result, x + scaled(x[3], x[4]))


REFUSED = {
    "loops": "def f(x):\n    s = 0.0\n    for v in x: s += v\n    return s",
    "branches": "def f(x):\n    return x if len(x) else -x",
    "assigns": "def f(x):\n    x[0] = 1\n    return x",
    "in place": "def f(x):\n    x += 1\n    return x",
    "other functions": "def f(x):\n    return np.sum(x)",
    "methods": "def f(x):\n    return x.sum()",
    "attributes": "def f(x):\n    return x * x.size",
    "random numbers": "def f(x):\n    return x * np.random.rand()",
    "prints": "def f(x):\n    print(1)\n    return x * 2",
    "an array outside": "def f(x):\n    return x * TABLE",
    "in place, too": "def f(x):\n    x %= 2\n    return x",
    "indexes": "def f(x):\n    return x[0] * x",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_more_than_compute_is_numba_s(name: str) -> None:
    names: dict[str, Any] = {"np": np, "TABLE": np.ones(3)}
    exec(REFUSED[name], names)
    assert recorded_form(numba.njit(names["f"])) is None


def test_what_is_compiled_otherwise_is_numba_s() -> None:
    for options in ({"fastmath": True}, {"parallel": True}):
        assert recorded_form(made("x + y", **options)) is None
    names: dict[str, Any] = {}
    exec("def f(x): return x * 2", names)
    assert recorded_form(numba.njit("f8[:](f8[:])")(names["f"])) is None, "it takes no others"


RETURNED = {
    "x": "what it is given",
    "2.0": "a number",
    "x > y": "",
    "x ** 0.5": "another power",
    "x ** 1": "one factor",
    "(x + 1) ** -2": "which has errors for 0",
    "x % 2": "of floats",
    "x // y": "of floats",
    "y ** x": "of arrays",
}


@pytest.mark.parametrize("source", RETURNED)
def test_results_that_are_not_new_are_numba_s(source: str) -> None:
    x, y = numbers("f8"), numbers("f8")[::-1].copy()
    function = made(source)
    found = record(lambda x, y: np.add(formed(function)(abs(x), y), 1), x, y, backend="python")
    assert bool(found.recorder.breaks) is bool(RETURNED[source])
    expected = function(abs(x), y) + 1
    assert_same(np.asarray(found.result), np.asarray(expected))


def test_values_are_those_that_numba_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    function = made("x * SCALE + y")
    form = formed(function)
    x = numbers("f8")
    function(x, x)
    assert recorded_form(function) == form
    monkeypatch.setitem(function.py_func.__globals__, "SCALE", 9.0)
    assert recorded_form(function) is None, "numba's code has the old value"
    monkeypatch.undo()
    assert recorded_form(function) == form == pickle.loads(pickle.dumps(form))
    assert form != formed(made("x * SCALE - y"))


def test_it_calls_the_function_itself_on_arrays() -> None:
    x = numbers("f4")
    assert_same(formed(bent)(x, low=1.0), bent(x, 1.0))


@pytest.fixture
def fused() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        yield


def block(a: Any) -> Any:
    return np.sqrt(abs(scaled(a, a * 2))) + bent(a, 1)


PROGRAMS: dict[str, Callable[[da.Array], da.Array]] = {
    "chunks": lambda x: ((x + 1).map_blocks(bent, dtype=float) * 2).sum(axis=0),
    "two": lambda x: da.map_blocks(scaled, x * 2, x, dtype=float) - 1,
    "ufunc": lambda x: da.apply_gufunc(bent, "()->()", x + 1, output_dtypes=float) * 2,
    "own": lambda x: (x + 1).map_blocks(block, dtype=float) * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_one_kernel_per_chunk(fused: None, name: str) -> None:
    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    program = PROGRAMS[name](x)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    reset_statistics()
    found = program.compute(scheduler="sync")
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert statistics().launches == 2
    assert not {why.kind for _, why in statistics().breaks} - {GraphBreak.ALONE}
    assert len(gpusched.explain(program).kernels) == 1


def test_nothing_is_reported_of_it(fused: None) -> None:
    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    program = (x * 2).map_blocks(_inverse, dtype=float) * 2
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
    assert not statistics().repeats


@numba.njit
def _inverse(x: Any) -> Any:
    return 1 / (x - x)
