"""What users' functions read may change while they are recorded: plans hold for what was read."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph import enable
from gpusched.graph.running.traced import Trace
from gpusched.store.statistics import reset_statistics, statistics

pytestmark = pytest.mark.usefixtures("everything_fused")

scale = 2.0
settings: Any = types.ModuleType("settings_of_a_test")


def by_global(x: Any) -> Any:
    return np.sqrt(x * scale + 1)


def by_module(x: Any) -> Any:
    return np.sqrt(x * settings.scale + 1)


def by_callee(x: Any) -> Any:
    return by_global(x) + 1


def by_import(x: Any) -> Any:
    from settings_of_a_test import scale

    return np.sqrt(x * scale + 1)


def by_lambda(x: Any) -> Any:
    return (lambda y: np.sqrt(y * scale + 1))(x)


def by_default(x: Any, by: float = 2.0) -> Any:
    return np.sqrt(x * by + 1)


def by_argument(x: Any, function: Callable[[Any], Any]) -> Any:
    return function(x) + 1


def closure() -> tuple[Callable[[Any], Any], types.CellType]:
    held = 2.0

    def by_cell(x: Any) -> Any:
        return np.sqrt(x * held + 1)

    assert by_cell.__closure__ is not None
    return by_cell, by_cell.__closure__[0]


by_cell, cell = closure()


def set_all(value: float) -> None:
    """Set everything that the functions above read."""
    globals()["scale"] = value
    settings.scale = value
    cell.cell_contents = value
    by_default.__defaults__ = (value,)


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    set_all(2.0)
    yield
    set_all(2.0)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "global": by_global,
    "module": by_module,
    "callee": by_callee,
    "import": by_import,
    "lambda": by_lambda,
    "default": by_default,
    "cell": by_cell,
    "argument": partial(by_argument, function=by_global),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_value_for_as_long_as_a_recording_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = FUNCTIONS[name]
    plain, recordings = Trace.__init__, []

    def trace(self: Trace, *args: Any, **kwargs: Any) -> None:
        set_all(50.0)
        try:
            recordings.append(self)
            plain(self, *args, **kwargs)
        finally:
            set_all(2.0)

    monkeypatch.setattr(Trace, "__init__", trace)
    reset_statistics()
    x = da.from_array(np.arange(12.0), chunks=3)
    with enable(), dask.config.set({"gpusched.fusion.strict": True}):
        found = x.map_blocks(function, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, function(np.arange(12.0)))
    assert len(recordings) == 1, "the plan was not kept"
    assert statistics().fused_tasks == 4


PAIR = (by_global, by_module)
SAME_PAIR = PAIR
LIST = [by_global]
WITHIN: list[Any] = []
WITHIN.append(WITHIN)
TABLE = {"function": by_global}
APPLIED = SAME_APPLIED = partial(by_argument, function=by_global)


def of_one_tuple(x: Any) -> Any:
    return x * 2 + 1 if PAIR is SAME_PAIR else x * 3 + 1


def of_one_list(x: Any, of: Any = LIST) -> Any:
    return x * 2 + 1 if of is LIST else x * 3 + 1


def of_one_dictionary(x: Any, of: Any = TABLE) -> Any:
    return x * 2 + 1 if of is TABLE else x * 3 + 1


def of_one_partial(x: Any) -> Any:
    return x * 2 + 1 if APPLIED is SAME_APPLIED else x * 3 + 1


def of_one_function(x: Any, function: Any = by_global) -> Any:
    return x * 2 + 1 if function is by_global else x * 3 + 1


def of_a_list_in_itself(x: Any) -> Any:
    return x * 2 + 1 if WITHIN is not None else x * 3 + 1


def of_one_module(x: Any) -> Any:
    import settings_of_a_test

    return x * settings.scale + 1 if settings_of_a_test is settings else x * 3 + 1


@pytest.mark.parametrize(
    "function",
    [of_one_tuple, of_one_list, of_one_dictionary, of_one_partial, of_one_function,
     of_a_list_in_itself, of_one_module],
)  # fmt: skip
def test_what_is_one_object_stays_one(function: Callable[[Any], Any]) -> None:
    reset_statistics()
    x = da.from_array(np.arange(12.0), chunks=3)
    with enable(), dask.config.set({"gpusched.fusion.strict": True}):
        found = x.map_blocks(function, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(12.0) * 2 + 1)
    assert statistics().fused_tasks == 4


def test_globals_that_no_function_reads_are_not_kept() -> None:
    class Held:
        pass

    globals()["unread"] = Held()
    held = weakref.ref(globals()["unread"])
    x = da.from_array(np.arange(12.0), chunks=3)
    gc.collect()
    gc.disable()
    try:
        with enable():
            x.map_blocks(by_callee, dtype=float).compute(scheduler="sync")
        del globals()["unread"]
        assert held() is None
    finally:
        gc.enable()
