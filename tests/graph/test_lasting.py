"""Programs last from graph to graph, and keep nothing alive that would not be."""

import gc
import warnings
import weakref
from functools import partial

import dask
import dask.array as da
import numba
import numpy as np
import pytest
from dask.array import reductions
from dask.utils import methodcaller
from scipy import special
from toolz import compose

from gpusched import disable, enable, kernel
from gpusched.backends import cache
from gpusched.graph import fusible
from gpusched.graph.programs import program as lasting
from gpusched.graph.programs.program import lasts
from gpusched.graph.running.remembered import held
from gpusched.graph.safety import examination
from gpusched.graph.safety.outside import is_little
from gpusched.newest import Newest
from gpusched.record.catalogue import FUSIBLE
from gpusched.store.statistics import statistics

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
    monkeypatch.setattr(lasting, "_recent", Newest(lasting.RECENT))
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
        before = statistics().breaks["exp", "small chunks"]
        assert recordings(chain) == 0
        assert statistics().breaks["exp", "small chunks"] == before + 2


def twice(block):
    return np.exp(block) * 2


def thrice(block):
    return np.exp(block) * 3


@fusible
def sorted_twice(block):
    return np.apply_over_axes(np.sort, np.exp(block) * 2, 0) + 1


def test_a_function_whose_code_is_replaced_is_another(monkeypatch):
    mapped = da.from_array(X, chunks=10_000).map_blocks(twice)

    def compute():
        with enable():
            return mapped.compute(scheduler="sync")

    with enable():
        optimised = dask.optimize(mapped)  # and with it the program
    assert recordings(compute) == 1
    assert recordings(compute) == 0
    before = compute()
    monkeypatch.setattr(twice, "__code__", thrice.__code__)
    assert recordings(compute) == 1
    np.testing.assert_allclose(compute(), before * 1.5)
    del optimised


def test_a_function_that_is_no_longer_asked_for_is_not_recorded(monkeypatch):
    mapped = (da.from_array(X, chunks=10_000) * 2 + 1).map_blocks(sorted_twice)

    def compute():
        with enable():
            return mapped.compute(scheduler="sync")

    with enable():
        optimised = dask.optimize(mapped)
    compute()

    def refused():
        counts = statistics().breaks.items()
        return sum(n for (_, reason), n in counts if "calls apply_over_axes, which" in reason)

    before = refused()
    monkeypatch.delattr(sorted_twice, FUSIBLE)
    compute()
    assert refused() == before + 2
    del optimised


FACTORS, TERMS = (2.0,), (3.0, 4.0)


def by_tables(block):
    for factor in FACTORS:
        block = block * factor
    for term in TERMS:
        block = block + term
    return block


def test_a_function_that_reads_other_tables_is_another(monkeypatch):
    mapped = da.from_array(X, chunks=10_000).map_blocks(by_tables)
    with enable():
        optimised = dask.optimize(mapped)
        np.testing.assert_array_equal(mapped.compute(scheduler="sync"), by_tables(X))
        monkeypatch.setitem(globals(), "FACTORS", (2.0, 3.0))
        monkeypatch.setitem(globals(), "TERMS", (4.0,))
        np.testing.assert_array_equal(mapped.compute(scheduler="sync"), by_tables(X))
    del optimised


def test_a_plan_of_ignored_errors_is_for_one_run():
    x = da.from_array(np.zeros(20_000), chunks=10_000)
    with enable():
        (optimised,) = dask.optimize(1 / (x * 2))
        with np.errstate(all="ignore"):
            optimised.compute(scheduler="sync")
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            (1 / (x * 2)).compute(scheduler="sync")


def silent_quotient(block):
    with np.errstate(divide="ignore"):
        quotient = np.divide(1.0, block, dtype="f8")
    return quotient * 2 + 1


def test_calls_between_kernels_keep_their_error_state():
    x = da.from_array(np.zeros(20_000), chunks=10_000)
    with enable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = x.map_blocks(silent_quotient, dtype=float).compute(scheduler="sync")
    assert np.isinf(found).all()


def test_a_failure_that_passes_is_for_one_run(monkeypatch):
    def failing(kernel):
        raise OSError("too many open files")

    x = da.from_array(X, chunks=10_000)
    program = (x + 1.0625) * 2.71875
    with enable(), dask.config.set({"gpusched.fusion.strict": False}):
        with monkeypatch.context() as patch:
            cache.kernels.clear()
            patch.setattr(cache.KernelCache, "loaded", lambda self, kernel: None)
            patch.setattr(cache, "prepare", failing)
            np.testing.assert_allclose(program.compute(scheduler="sync"), (X + 1.0625) * 2.71875)
        before = statistics().fused_tasks
        program.compute(scheduler="sync")
        assert statistics().fused_tasks == before + 2


def test_arrays_that_plans_hold_are_few():
    bytes_held = []
    with enable():
        for width in (200_000, 210_000, 220_000):
            x = da.ones((4, width), chunks=(2, width))
            (x * 2 + 1).mean(axis=0).compute(scheduler="sync")
            plans = [
                plan
                for program in lasting._recent.values()
                for part in program.segments
                for plan in part.remembered.values()
            ]
            bytes_held.append(sum(map(held, plans)))
    assert max(bytes_held) <= 2 * 220_000 * 8


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
    monkeypatch.setattr(lasting, "_recent", Newest(2))
    for name in "abcab":
        lasting.keep(name)
    assert list(lasting._recent.values()) == ["a", "b"]


OTHERS = {
    "a keyword": lambda x, k: da.sum(x, axis=k),
    "a number": lambda x, k: x * (2.0, 3.0)[k],
    "a type": lambda x, k: x * (1, 1.0)[k],
    "a sign": lambda x, k: np.copysign(x, (0.0, -0.0)[k]),
    "the sign of NaN": lambda x, k: np.copysign(x, (np.nan, -np.nan)[k]),
    "of one in a part": lambda x, k: np.copysign(
        x, (x * complex(0, (np.nan, -np.nan)[k]) * 0 + complex(0, (np.nan, -np.nan)[k])).imag
    ),
    "metadata": lambda x, k: x.astype(np.dtype("f4", metadata={"unit": "mK"[1 - k :]})),
    "a function": lambda x, k: da.map_blocks((np.exp, np.sin)[k], x, dtype=x.dtype),
    "of a partial": lambda x, k: x.map_blocks(partial((np.add, np.subtract)[k], 3), dtype=x.dtype),
    "its argument": lambda x, k: x.map_blocks(partial(np.add, (3, 4)[k]), dtype=x.dtype),
    "an input twice": lambda x, k: np.hypot(x + 1, (x + 1, x + 2)[k]),
    "a slice": lambda x, k: (x[:, 1:], x[:, ::-2])[k] + 1,
    "a dtype": lambda x, k: (x * 3).astype(("f4", "i8")[k]),
    "an array": lambda x, k: x + np.arange(20, dtype=("f4", "c16")[k]),
    "a scalar": lambda x, k: x * (np.float32(2), np.int8(3))[k],
    "a composition": lambda x, k: x.map_blocks(compose(np.abs, (np.sin, np.cos)[k]), dtype=float),
    "a list in it": lambda x, k: x.map_blocks(
        compose(partial(np.moveaxis, source=[0], destination=[k]), np.sin), dtype=float
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_forms_that_differ_are_others(name):
    values = np.linspace(-9, 9, 400).reshape(20, 20)
    for k in (0, 1, 0, 1):
        x = da.from_array(values, chunks=10)
        with disable():
            expected = OTHERS[name](x, k).compute(scheduler="sync")
        with enable():
            found = OTHERS[name](x, k).compute(scheduler="sync")
        assert (found.dtype, found.dtype.metadata) == (expected.dtype, expected.dtype.metadata)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_guards_are_those_of_the_graph_s_own_functions():
    for k in range(3):
        function = partial(np.multiply, 3.0)
        x = da.from_array(np.arange(24.0), chunks=8)
        with enable():
            (optimised,) = dask.optimize(x.map_blocks(function, dtype=float) + 1)
            assert optimised.compute(scheduler="sync")[1] == 4
            function.__setstate__((np.add, (100.0 + k,), {}, {}))
            assert optimised.compute(scheduler="sync")[1] == 102 + k


@pytest.mark.parametrize("keeps", [False, True])
def test_what_holds_partial_applications_is_each_graph_s_own(keeps):
    def made():
        inner = partial(np.multiply, 3.0)
        outer = partial(inner) if keeps else compose(np.abs, inner)
        return inner, da.from_array(np.arange(24.0), chunks=8).map_blocks(outer, dtype=float) + 1

    with enable():
        for _ in range(3):
            inner, x = made()
            assert x.compute(scheduler="sync")[1] == 4
            inner.__setstate__((np.add, (100.0,), {}, {}))


class Made:
    pass


def module_level(x):
    return x


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.exp, True),
        (np.where, True),
        (special.erf, True),
        (methodcaller("astype"), True),
        (reductions.mean_chunk, True),
        (partial(reductions.mean_chunk, axis=3), True),
        (partial(np.sum, axis=lambda: 3), False),
        (partial(np.interp, xp=np.ones(3)), False),
        (partial(np.sum, key=[lambda: 3]), False),
        (np.float32, True),
        (Made, False),
        (module_level, False),
        (compose(np.max, partial(np.concatenate, axis=0)), True),
        (compose(np.max, lambda x: x), False),
        (np.frompyfunc(module_level, 1, 1), False),
        ((1, "one", {"dtype": np.dtype(float)}), True),
        ([{"function": lambda: 3}], False),
    ],
)
def test_functions_of_libraries_last(value, expected):
    assert lasts(value) is expected


@kernel
def steps(x):
    count = 0
    while x > 1 and count < 9:
        x, count = x / 2, count + 1
    return count


@numba.vectorize(["float64(float64)"])
def halved(x):
    return x / 2 if x > 0 else x


@pytest.mark.parametrize("function", [steps, halved, special.erf])
def test_kernels_and_ufuncs_are_recorded_once(function):
    def compute():
        with enable():
            x = da.from_array(X, chunks=10_000) * 3
            return function(x).compute(scheduler="sync")

    assert recordings(compute) == 1
    gc.collect()
    assert recordings(compute) == 0


@pytest.mark.usefixtures("no_plans")
def test_safe_functions_that_hold_no_arrays_last():
    def compute():
        with enable():
            return da.from_array(X, chunks=10_000).map_blocks(twice).compute(scheduler="sync")

    assert recordings(compute) == 1
    assert recordings(compute) == 0
    np.testing.assert_allclose(compute(), np.exp(X) * 2)


@pytest.mark.usefixtures("no_plans")
def test_what_such_a_function_reads_is_read_each_time(monkeypatch):
    def compute():
        with enable():
            return da.from_array(X, chunks=10_000).map_blocks(by_tables).compute(scheduler="sync")

    assert [recordings(compute), recordings(compute)] == [1, 0]
    monkeypatch.setitem(globals(), "FACTORS", (2.0, 3.0))
    np.testing.assert_array_equal(compute(), by_tables(X))
    monkeypatch.setattr(by_tables, "__code__", thrice.__code__)
    np.testing.assert_allclose(compute(), np.exp(X) * 3)


def added(block, number):
    return block * 2 + number


def test_equal_numbers_of_other_types_are_other_calls():
    x = da.from_array(np.arange(8, dtype="i1"), chunks=4)
    for number in (1, True, 1.0, np.float32(1), np.int64(1), -0.0, 0.0):
        with enable():
            found = x.map_blocks(added, number).compute(scheduler="sync")
        expected = added(np.arange(8, dtype="i1"), number)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


class Tables:
    held = None


def reads_an_array(block):
    return block * Tables.held[0] + 1


@pytest.mark.parametrize("name", ["attribute", "cell"])
def test_arrays_that_functions_read_are_let_go(name, monkeypatch):
    class Held(np.ndarray):
        pass

    alive = []

    def compute():
        held = np.arange(3.0).view(Held)
        alive.append(weakref.ref(held))
        monkeypatch.setattr(Tables, "held", held)
        function = reads_an_array if name == "attribute" else (lambda block: block * held[0] + 1)
        with enable():
            y = da.from_array(X, chunks=10_000).map_blocks(function, dtype=float)
            y.compute(scheduler="sync")

    compute()
    monkeypatch.undo()
    gc.collect()
    assert alive[0]() is None


_elsewhere: dict = {"array": X}
exec(
    """import functools

def decorated(function):
    @functools.wraps(function)
    def inner(block):
        return function(block)
    return inner
""",
    _elsewhere,
)


@_elsewhere["decorated"]
def decorated_elsewhere(block):
    return block * 2.0 + 1.0


def test_a_function_with_a_decorator_of_another_module_is_examined_once(monkeypatch):
    asked, examined = [], examination.examined

    def counted(function, *how):
        asked.append(function)
        return examined(function, *how)

    monkeypatch.setattr(examination, "examined", counted)
    for _ in range(3):
        with enable():
            y = da.from_array(X, chunks=10_000).map_blocks(decorated_elsewhere, dtype=float)
            np.testing.assert_array_equal(y.compute(scheduler="sync"), X * 2.0 + 1.0)
    assert asked.count(decorated_elsewhere) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (twice, True),
        (decorated_elsewhere, True),
        (np.where, True),
        (np, True),
        (lambda x: x + 1, True),
        (lambda x, y=X: x + y, False),
        ((1, ("two", None)), True),
        ([], False),
        (Made, False),
        (Made(), False),
        (partial(twice, 1), False),
        (eval("lambda x: x", {}), True),
        (eval("lambda x: x", {"array": X}), False),
    ],
)
def test_what_is_little(value, expected):
    assert is_little(value) is expected


def test_what_a_function_has_as_attributes_and_annotations_counts():
    def annotated(x: int, y: "array") -> np.ndarray | None:  # noqa: F821
        return x

    assert is_little(annotated)
    annotated.cache = 3
    assert is_little(annotated)
    annotated.cache = X
    assert not is_little(annotated)
    del annotated.cache
    annotated.__annotations__["x"] = X
    assert not is_little(annotated)


def test_a_function_that_holds_itself_is_little():
    def recursive(x):
        return x if x is None else recursive(None)

    assert is_little(recursive)


def test_functions_of_one_namespace_are_each_asked_for_once():
    names = {}
    for k in range(40):
        exec(f"def f{k}(x): return x", names)
    assert is_little(names["f0"])
