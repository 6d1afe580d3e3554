"""Programs last from graph to graph, and keep nothing alive that would not be."""

import gc
import weakref
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from toolz import compose

from gpusched import enable
from gpusched.fusion.statistics import statistics
from gpusched.graph import fusible, lasting
from gpusched.graph.lasting import lasts
from gpusched.graph.marking import FUSIBLE

X = np.linspace(-1, 1, 20_000)


def recordings(compute):
    before = statistics().recordings
    compute()
    return statistics().recordings - before


def chain():
    x = da.from_array(X, chunks=10_000)
    with enable():
        return (da.exp(x) * 2 - 1).compute(scheduler="sync")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(lasting, "_recent", {})
    gc.collect()


def test_a_graph_that_comes_again_records_nothing():
    assert recordings(chain) == 1
    gc.collect()
    assert recordings(chain) == 0
    np.testing.assert_allclose(chain(), np.exp(X) * 2 - 1, atol=1e-15)


@pytest.mark.parametrize(
    "settings", [{"maximum-operations": 2}, {"mathematics": "fast"}, {"minimum-elements": 1}]
)
def test_other_settings_are_heeded(settings):
    chain()
    with dask.config.set({f"gpusched.fusion.{key}": value for key, value in settings.items()}):
        assert recordings(chain) == 1


def test_errors_that_are_no_longer_ignored_are_told():
    def compute():
        x = da.from_array(np.zeros(20_000), chunks=10_000).persist(scheduler="sync")
        with enable():
            return (1 / (x * 2)).compute(scheduler="sync")

    with np.errstate(all="ignore"):
        assert np.isinf(compute()).all()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        compute()


def test_a_setting_that_forbids_recording_is_heeded():
    chain()
    with dask.config.set({"gpusched.fusion.minimum-elements": 10**9}):
        before = statistics().breaks["multiply", "small chunks"]
        assert recordings(chain) == 0
        assert statistics().breaks != before


def twice(block):
    return np.exp(block) * 2


def thrice(block):
    return np.exp(block) * 3


@fusible
def sorted_twice(block):
    return np.sort(np.exp(block) * 2) + 1


def test_a_function_whose_code_is_replaced_is_another(monkeypatch):
    def compute():
        with enable():
            return da.from_array(X, chunks=10_000).map_blocks(twice).compute(scheduler="sync")

    assert recordings(compute) == 1
    assert recordings(compute) == 0
    before = compute()
    monkeypatch.setattr(twice, "__code__", thrice.__code__)
    assert recordings(compute) == 1
    np.testing.assert_allclose(compute(), before * 1.5)


def test_a_function_that_is_no_longer_asked_for_is_not_recorded(monkeypatch):
    def compute():
        with enable():
            x = da.from_array(X, chunks=10_000) * 2 + 1
            return x.map_blocks(sorted_twice).compute(scheduler="sync")

    compute()
    before = statistics().breaks["sorted_twice", "your function uses .sort"]
    monkeypatch.delattr(sorted_twice, FUSIBLE)
    compute()
    assert statistics().breaks["sorted_twice", "your function uses .sort"] == before + 2


def test_what_a_users_function_holds_is_let_go():
    class Held(np.ndarray):
        pass

    def compute():
        held = np.ones(10_000).view(Held)
        alive.append(weakref.ref(held))
        x = da.from_array(X, chunks=10_000)
        with enable():
            y = x.map_blocks(lambda block: np.exp(block) * held + 1, dtype=float)
            (y * 2).compute(scheduler="sync")

    alive: list[weakref.ref] = []
    compute()
    gc.collect()
    assert alive[0]() is None


def test_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(lasting, "RECENT", 2)
    for key in "abcab":
        lasting.keep(key, key)
    assert list(lasting._recent) == ["a", "b"]


def module_level(x):
    return x


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.exp, True),
        (np.where, True),
        (module_level, True),
        (partial(module_level, 3), True),
        (partial(module_level, lambda: 3), False),
        (partial(module_level, key=[lambda: 3]), False),
        (compose(np.max, partial(np.concatenate, axis=0)), True),
        (compose(np.max, lambda x: x), False),
        (np.frompyfunc(module_level, 1, 1), False),
        ((1, "one", {"dtype": np.dtype(float)}), True),
        ([{"function": lambda: 3}], False),
    ],
)
def test_functions_of_modules_last(value, expected):
    assert lasts(value) is expected
