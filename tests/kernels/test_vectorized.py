"""numba's ufuncs, whose functions become part of kernels: with numba's dtypes and frozen values."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numba
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph.functions import known  # noqa: F401  which says what knows numba
from gpusched.kernels.vectorized import Vectorized
from gpusched.record import catalogue
from gpusched.record.catalogue import recorded_form
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import assert_same, check, record

SCALE = 2.5


def lazily(*signatures: str) -> Callable[[Any], Callable[[], Any]]:
    """Return a decorator that has numba make a ufunc when it is first asked for."""
    return lambda function: cache(lambda: numba.vectorize(list(signatures))(function))


@lazily("float32(float32, float32)", "float64(float64, float64)", "int64(int64, int64)")
def weighed(x: Any, y: Any) -> Any:
    return x * y + 0.5 * x - y


@lazily("float64(float64)", "float32(float32)")
def damped(x: Any) -> Any:
    if x < 0:
        return 0.0
    return math.exp(-x) * SCALE


@lazily("boolean(float64)")
def is_odd(x: Any) -> Any:
    return x % 2 == 1


def numbers(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return (random.integers(-9, 9, shape or (40,)) / (4 if dtype[0] == "f" else 1)).astype(dtype)


DTYPES = ["?", "i1", "u1", "i2", "i4", "i8", "u8", "f4", "f8"]


@pytest.mark.parametrize("dtypes", list(product(DTYPES, ["i4", "i8", "f4", "f8"])), ids="-".join)
def test_loops_are_those_that_numpy_would_run(dtypes: tuple[str, str]) -> None:
    x, y = (numbers(d) for d in dtypes)
    if not check_or_refuse(weighed(), x, y):
        pytest.skip("numba has no loop for these either")


def check_or_refuse(function: Callable[..., Any], *arrays: np.ndarray) -> bool:
    """Compare with numba on plain Python; return False if numba itself refuses such dtypes."""
    try:
        function(*arrays)
    except TypeError:
        return False
    found = check(lambda *chunks: function(*chunks), *arrays, backend="python")
    assert not found.recorder.breaks
    return True


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_a_chain_is_one_kernel(backend: str) -> None:
    def chain(x: Any, y: Any) -> Any:
        return np.sqrt(abs(weighed()(x, y))) * 2 + damped()(x - 1), is_odd()(y * 4)

    for dtype in ("f4", "f8"):
        found = check(chain, numbers(dtype), numbers("f8")[::-1], backend=backend, ulp=2)
        assert len(found.launches) == 1
        assert not found.recorder.breaks


def test_python_s_own_numbers_take_the_dtype_of_the_others() -> None:
    for x in (numbers("f4"), numbers("f8"), numbers("i8")):
        check(lambda x: (weighed()(x, 2), weighed()(3, x), weighed()(x, np.float32(0.1))), x,
              backend="python", ulp=4, scale=4)  # fmt: skip
    check(lambda x: weighed()(x, 0.1), numbers("f4"))


def test_shapes_are_broadcast() -> None:
    found = check(lambda x, y: weighed()(x, y), numbers("f8", 20, 1), numbers("f8", 30))
    assert len(found.launches) == 1


def made(factor: float, **options: Any) -> Any:
    @numba.vectorize(**options)
    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


def test_loops_that_numba_has_not_compiled_are_its_own() -> None:
    x = numbers("f8")
    scaled = made(3.0)
    assert recorded_form(scaled) is None, "there is no loop to compare with"
    scaled(1.0)
    found = check(lambda x: scaled(x) + 1, x, backend="python")
    assert not found.recorder.breaks
    # int64 is converted for the loop that there is; complex numbers have none so far.
    check(lambda x: scaled(x) + 1, numbers("i8"), backend="python")
    found = record(lambda x: scaled(x).real + 1, x + 1j, backend="python")
    assert [(name, str(why)) for name, why in found.recorder.breaks] == [
        ("scaled", "numba has compiled no loop for these dtypes")
    ]
    assert_same(found.result, x * 3 + 1)


def test_values_are_those_that_numba_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers("f8")
    before = damped()(x)
    form = recorded_form(damped())
    assert form is not None
    monkeypatch.setitem(damped()._dispatcher.py_func.__globals__, "SCALE", 9.0)
    assert recorded_form(damped()) is None, "numba's loops have the old value"
    np.testing.assert_array_equal(damped()(x), before)
    found = record(lambda x: damped()(x) * 2, x, backend="python")
    np.testing.assert_array_equal(found.result, before * 2)
    assert [name for name, _ in found.recorder.breaks] == ["damped"]
    monkeypatch.undo()
    assert recorded_form(damped()) == form


def test_forms_are_equal_if_they_compute_the_same() -> None:
    one, other, another = (made(f) for f in (3.0, 3.0, 4.0))
    for each in (one, other, another):
        each(1.0)
    assert recorded_form(one) == recorded_form(other) != recorded_form(another)
    other(np.float32(1))
    other._compile_for_argtys((numba.float32,))
    assert recorded_form(one) != recorded_form(other), "another loop may be chosen"
    assert pickle.loads(pickle.dumps(recorded_form(one))) == recorded_form(one)


@numba.njit
def half(x: Any) -> Any:
    return x * 0.5


@numba.njit
def inverse(x: Any) -> Any:
    return 1 / x


@lazily("float64(float64)")
def by_half(x: Any) -> Any:
    return half(x) + 1


@lazily("float64(float64)")
def by_inverse(x: Any) -> Any:
    return inverse(x) + 1


def test_functions_that_it_calls_are_part_of_the_kernel() -> None:
    found = check(lambda x: by_half()(x) * 2, numbers("f8"), backend="python")
    assert len(found.launches) == 1
    assert not found.recorder.breaks
    assert recorded_form(by_inverse()) is None, "numba's raises an error for zero"
    found = check(lambda x: by_inverse()(x + 100) * 2, numbers("f8"), backend="python")
    assert [name for name, _ in found.recorder.breaks] == ["by_inverse"]


TABLE = np.arange(3.0)


@lazily("float64(float64)")
def of_an_array(x: Any) -> Any:
    return x * TABLE[1]


def test_what_may_have_changed_since_it_was_compiled_is_numba_s() -> None:
    assert recorded_form(of_an_array()) is None
    assert recorded_form(made(2.0, fastmath=True)) is None
    assert recorded_form(np.add) is None


@pytest.fixture
def fused() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        reset_statistics()
        yield


def compared(program: da.Array) -> None:
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    found = program.compute(scheduler="sync")
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_chunks_are_fused(fused: None) -> None:
    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    compared((weighed()(x, x + 1) * 2 - damped()(x)).sum(axis=0))
    assert statistics().launches == 2
    assert not {why.kind for _, why in statistics().breaks} - {GraphBreak.ALONE}


def test_no_task_waits_for_a_kernel_that_numba_can_do_without(fused: None, tmp_path: Path) -> None:
    kept = {"gpusched.fusion.compile": "off", "gpusched.fusion.cache-directory": str(tmp_path)}
    with dask.config.set(kept):
        compared(damped()((da.ones((9, 8), chunks=(9, 4)) - 3) * 2.5) + 0.125)
    assert (statistics().unfused_tasks, statistics().launches) == (2, 0)


def test_users_functions_call_them(fused: None) -> None:
    weigh, damp = weighed(), damped()

    def block(a: Any) -> Any:
        return np.sqrt(abs(weigh(a, a * 2))) + damp(a)

    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    compared((x + 1).map_blocks(block, dtype=float) * 2)
    assert statistics().launches == 2
    assert not statistics().breaks


def test_a_changed_value_is_seen_between_computations(
    fused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    damp = damped()
    program = (x + 1).map_blocks(lambda a: damp(a) * 2, dtype=float) * 2
    compared(program)
    monkeypatch.setitem(damped()._dispatcher.py_func.__globals__, "SCALE", 9.0)
    compared(program)
    assert any("damped" in why for _, why in statistics().breaks)


def test_arguments_that_change_arrays_are_refused(fused: None) -> None:
    weigh = weighed()

    def block(a: Any) -> Any:
        b = a * 2
        weigh(a, a, out=b)
        return b + a

    x = da.from_array(numbers("f8", 40, 30), chunks=(20, 30))
    compared((x + 1).map_blocks(block, dtype=float))


@lazily("float64(float64, float64)")
def add(x: Any, y: Any) -> Any:
    return x * y


def test_a_name_of_numpy_s_makes_no_ufunc_of_numpy_s() -> None:
    x = numbers("f8")
    found = record(lambda x: add().reduce(x) + add()(x, x), x)
    np.testing.assert_allclose(found.result, add().reduce(x) + x * x)


def test_the_form_calls_the_ufunc_itself_on_arrays() -> None:
    form = recorded_form(weighed())
    assert isinstance(form, Vectorized)
    assert form.__name__ == "weighed"
    np.testing.assert_array_equal(form(numbers("f4"), 2), weighed()(numbers("f4"), 2))


def test_what_knows_a_library_is_imported_for_its_first_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ufunc:
        __module__ = "a_library"
        owned = False

    (tmp_path / "knows_a_library.py").write_text(
        "def owns(function): return function.owned\ndef form(function): return 'its form'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(catalogue.LIBRARIES, "a_library", "knows_a_library")
    assert recorded_form(np.add) is None
    assert "knows_a_library" not in sys.modules
    ufunc = Ufunc()
    assert recorded_form(ufunc) is None
    ufunc.owned = True
    assert recorded_form(ufunc) == "its form"
    monkeypatch.delitem(sys.modules, "knows_a_library")


def test_numba_is_not_asked_for_what_its_loops_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def inferred(chosen: Any) -> Any:
        raise AssertionError(f"{chosen} would be compiled beside tasks of the first run")

    monkeypatch.setattr("gpusched.kernels.typed._inferred", inferred)
    check(damped(), numbers("f4", 40), ulp=2)
