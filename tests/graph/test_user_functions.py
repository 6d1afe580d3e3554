"""Functions of the user's: whatever they do, they do what they do with plain dask."""

from __future__ import annotations

import importlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak
from gpusched.graph import disable, enable, fusible
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.program_tokens import refer
from gpusched.graph.safety import check
from gpusched.graph.safety.outside import stand_in
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.plan import Register
from gpusched.record import record
from gpusched.record.chunk import LazyChunk
from gpusched.record.record import Recorder
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics

from .conftest import SETTINGS

pytestmark = pytest.mark.usefixtures("everything_fused")


def values() -> np.ndarray:
    return np.arange(24.0).reshape(4, 6) - 7.25


def outcome(make: Callable[[da.Array], Any]) -> tuple[Any, np.ndarray]:
    """Return what a program gives, and its input afterwards."""
    given = values()
    x = da.from_array(given, chunks=(4, 3), name=False)
    chunks = [np.array(given[:, :3]), np.array(given[:, 3:])]
    graph = {(x.name, 0, k): chunk for k, chunk in enumerate(chunks)}
    x = da.Array(graph, x.name, x.chunks, x.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = make(x).compute(scheduler="sync")
        except Exception as error:
            found = type(error)
    return found, np.concatenate(chunks, axis=1)


def compare(make: Callable[[da.Array], Any], runs: int = 2) -> None:
    """Check a program's result, its kind, and what has become of its input, against plain dask."""
    with disable():
        expected, input_after = outcome(make)
    for _ in range(runs):
        found, given = outcome(make)
        assert type(found) is type(expected), (found, expected)
        np.testing.assert_array_equal(given, input_after)
        if isinstance(expected, np.ndarray | np.generic):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        else:
            assert found == expected


def copy_that_is_none(x: Any) -> Any:
    t = x + 1
    y = t.astype(x.dtype, copy=False)
    t += 1
    return y


def rows_change(x: Any) -> Any:
    y = x * 2
    for row in x:
        row += 1
    return y


def unpacked_rows_change(x: Any) -> Any:
    y = x * 2
    a, b, _, _ = x
    a += 1
    return y + b


def rows_then_all_change(x: Any) -> Any:
    t = x * 2
    for row in t:
        row += 1
    t += 1
    return t


def input_rows_then_all_change(t: Any) -> Any:
    for row in t:
        row += 1
    t += 1
    return t * 2


def nan_to_num_in_place(x: Any) -> Any:
    y = x * 2
    np.nan_to_num(x, copy=False)
    np.nan_to_num(x, False)
    return y + x


def clip_into(x: Any) -> Any:
    t = x * 3
    np.clip(x, 0, 1, t)
    return t


def clip_method_into(x: Any) -> Any:
    y = x * 2
    x.clip(0, 1, x)
    return y + x


def sum_into(x: Any) -> Any:
    t = x[0] * 2
    np.sum(x, 0, None, t)
    return x + t


def round_into(x: Any) -> Any:
    y = x * 2
    np.round(x, 0, x)
    return y + x


def handler(x: Any) -> Any:
    try:
        x += 1
    except:  # noqa: E722
        x = x * 1
    return x * 2


def handler_of_errors(x: Any) -> Any:
    try:
        x += 1
    except Exception:
        x = x * 1
    return x * 2


def handler_at_the_end(x: Any) -> Any:
    try:
        x[0] = 5
    finally:
        x = x * 2
    return x


def where_and_out(x: Any) -> Any:
    t = x * 2
    np.add(t, 1, where=x > 0, out=t)
    return t


def divide_where(x: Any) -> Any:
    t = x * 2
    y = x - x[0]
    np.divide(t, y, out=t, where=y != 0)
    return t


def in_place_dtype(x: Any) -> Any:
    t = x * 2
    np.multiply(t, 1.1, out=t, dtype="f4", casting="same_kind")
    return t


def scalar_of_an_array(x: Any) -> Any:
    f = np.float64(x)
    y = x * f
    f += 1
    return y + f


def formats(x: Any) -> Any:
    return x + len(f"{x.max()}")


def formats_old(x: Any) -> Any:
    return x + len("%s" % x.max())  # noqa: UP031


def views_see_changes(x: Any) -> Any:
    t = x + 1
    view = t.T
    t *= 2
    return view.T * 1


def expanded_view(x: Any) -> Any:
    t = x + 1
    view = np.expand_dims(t, 0)
    t -= 5
    return view[0] + 0


def real_is_no_copy(x: Any) -> Any:
    t = x + 1
    same = np.real(t)
    t += 1
    return same * 2


def alias_of_a_result(x: Any) -> Any:
    t = x + 1
    other = t
    t += 1
    return other * t


def accumulates(x: Any) -> Any:
    total = 0
    for k in range(4):
        total += x * k
    return total


def a_copy(x: Any) -> Any:
    t = x.copy()
    t += 1
    return t


def same_dtype(x: Any) -> Any:
    return x.astype(x.dtype)


def item_assignment(x: Any) -> Any:
    out = np.zeros_like(x)
    out[1:] = x[:-1]
    return out


def bounds_given_twice(x: Any) -> Any:
    return np.clip(x * 2, 0, 1, min=3)


def one_bound_without_its_name(x: Any) -> Any:
    return np.clip(x * 2, 0)


def deletes_axis(x: Any) -> Any:
    return np.delete(x, 0, axis=0)[[0, 0, 1, 2]] + 1


def sorts(x: Any) -> Any:
    t = x * -1
    t.sort(axis=0)
    return t


def fills(x: Any) -> Any:
    t = x * 1
    t.fill(3)
    return t + x


def nested_default(x: Any, weights: Any = (1, 2, (3, 4))) -> Any:
    a, b, (c, d) = weights
    return x * a + b - c * d


def as_array(x: Any) -> Any:
    return np.asarray(x) * 2 + np.asanyarray(x)


def as_array_of_another_dtype(x: Any) -> Any:
    return np.asarray(x, dtype="f4") + np.asarray(x, np.int64)


def as_array_is_no_copy(x: Any) -> Any:
    y = np.asarray(x, dtype=float)
    y += 1
    return x


def array_is_a_copy(x: Any) -> Any:
    y = np.array(x)
    y += x
    y[y > 3] = 0
    return y


def array_of_another_dtype(x: Any) -> Any:
    y = np.array(x, dtype=np.float32)
    y *= 2
    return y


def only_a_copy(x: Any) -> Any:
    return np.array(x)


def array_of_a_scalar(x: Any) -> Any:
    total = np.asarray(x.sum())
    return x * isinstance(total, np.ndarray) + (np.array(x.max()) + total)[None]


def array_of_scalars(x: Any) -> Any:
    y = np.array([x.min(), x.max(), x.mean()])
    y += 1
    return x * y.sum() + np.array([part.sum() for part in (x, -x)], "f4")[0]


def array_of_rows(x: Any) -> Any:
    return np.array([x[0], x[1] * 2, np.sqrt(abs(x[-1]))])


def array_of_unlike_arrays(x: Any) -> Any:
    return x + np.array([x.mean(), x.astype("f4").sum()])[1] + np.array([x, x * 2])[1]


def array_of_scalars_beyond_a_dtype(x: Any) -> Any:
    whole = (x * 100).astype(np.int64)
    return x + np.array([whole.max(), whole.min()], np.int8)[0]


def array_of_no_numbers_as_integers(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return x + np.array([(x / 0).sum(), x.sum()], int)[0]


def array_of_scalars_rounded_twice(x: Any) -> Any:
    whole = (x * 0).astype(np.int64) + (2**60 + 2**36 + 1)
    return x + np.array([whole.max(), whole.min()], np.float32)[0]


def array_of_parts(x: Any) -> Any:
    return np.array([x[0], x[0, 1:]])


def array_of_numbers_too(x: Any) -> Any:
    return x * np.array([x.mean(), 2])[1]


def a_scalar_as_an_array(x: Any) -> Any:
    return np.array(x.mean())


def asks_types(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        raise TypeError("no array")
    sums = x.sum(axis=0), x.sum()
    return [x * (k + 1) + 2 * isinstance(each, float) - isinstance(each, np.generic)
            for k, each in enumerate(sums)][-1] + isinstance(x.dtype, np.dtype)  # fmt: skip


def asks_the_type_of_what_has_a_new_axis(x: Any) -> Any:
    total, first = np.asarray(x.sum())[None], x[0, None, 1]
    return x * isinstance(total, np.ndarray) + 2 * isinstance(first, np.generic) + total**2


def of_another_type(x: Any) -> Any:
    return x + 1 if isinstance(x, np.generic) else np.sqrt(np.abs(x))


def truths(x: Any) -> Any:
    return (x * True + False) / True - (True - x) ** True


FUNCTIONS = [
    copy_that_is_none, rows_change, unpacked_rows_change, rows_then_all_change,
    input_rows_then_all_change, nan_to_num_in_place, clip_into, clip_method_into, sum_into,
    round_into, handler, handler_of_errors, handler_at_the_end, where_and_out, divide_where,
    in_place_dtype, scalar_of_an_array, formats, formats_old, views_see_changes, expanded_view,
    real_is_no_copy, alias_of_a_result, accumulates, a_copy, same_dtype, item_assignment,
    bounds_given_twice, one_bound_without_its_name, deletes_axis, sorts, fills, nested_default,
    as_array, as_array_of_another_dtype, as_array_is_no_copy, array_is_a_copy,
    array_of_another_dtype, only_a_copy, array_of_a_scalar, a_scalar_as_an_array,
    array_of_scalars, array_of_rows, array_of_unlike_arrays, array_of_parts, array_of_numbers_too,
    array_of_scalars_beyond_a_dtype, array_of_no_numbers_as_integers,
    array_of_scalars_rounded_twice,
    asks_types,
    asks_the_type_of_what_has_a_new_axis, of_another_type, truths,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function(function: Any) -> None:
    compare(lambda x: x.map_blocks(function, dtype=x.dtype))
    compare(lambda x: (x + 1).map_blocks(function, dtype=x.dtype) * 2)


MARKED = [f for f in FUNCTIONS if f.__name__ not in (
    # Promised not to: they change their argument in place.
    "rows_change", "unpacked_rows_change", "input_rows_then_all_change", "nan_to_num_in_place",
    "clip_method_into", "round_into", "handler", "handler_of_errors", "handler_at_the_end",
    # They ask of what type it is, which is answered for what is recorded without a promise.
    "asks_types", "asks_the_type_of_what_has_a_new_axis",
)]  # fmt: skip


@pytest.mark.parametrize("function", MARKED)
def test_marked_function(function: Any) -> None:
    """The lazy chunk itself is right, whatever is done with it, for new arrays at least."""

    def marked(x: Any) -> Any:
        return function(x)

    fusible(marked)
    compare(lambda x: x.map_blocks(marked, dtype=x.dtype))


@pytest.mark.parametrize(
    "function",
    [rows_change, nan_to_num_in_place, clip_method_into, round_into, handler, handler_at_the_end],
)
def test_a_marked_function_that_breaks_its_promise_starts_once(function: Any) -> None:
    """A recording that is given up has changed nothing."""

    def marked(x: Any) -> Any:
        return function(x)

    fusible(marked)
    compare(lambda x: x.map_blocks(marked, dtype=x.dtype), runs=1)


class Gain:
    """Functions with a number of their object's: marked where they are written."""

    def __init__(self) -> None:
        self.factor = 2.0

    @fusible
    def __call__(self, x: Any) -> Any:
        return np.abs(-x) * self.factor

    def scaled(self, x: Any) -> Any:
        return np.abs(-x) * self.factor

    def more(self, x: Any, n: float) -> Any:
        return np.abs(-x) * self.factor + n


@pytest.mark.parametrize("make", [
    lambda gain: gain,
    lambda gain: fusible(gain.scaled),
    lambda gain: fusible(partial(gain.more, n=1)),
], ids=["object", "method", "partial"])  # fmt: skip
def test_marked_methods(make: Any) -> None:
    """The mark is that of what is called in the end, and the object is read for each chunk."""
    gain = Gain()
    function = make(gain)
    for factor in (2.0, 3.0):
        gain.factor = factor
        reset_statistics()
        compare(lambda x: x.map_blocks(function, dtype=x.dtype))
        assert statistics().launches
        assert not statistics().breaks


def running_total(x: Any) -> Any:
    total = x[:, 0] * 0
    for k in range(x.shape[1]):
        total = total + x[:, k] * 2
    return total


@pytest.mark.parametrize("first", [lambda x: x, lambda x: x * 3 - 1], ids=["alone", "after"])
def test_long_loops_are_recorded_once(first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that makes too many calls is not tried again: by itself, or for other shapes."""
    counted, count = [], Recorder.count
    monkeypatch.setattr(record, "CALLS", 9)
    monkeypatch.setattr(Recorder, "count", lambda self: (counted.append(1), count(self)))
    given = np.arange(60.0).reshape(5, 12)
    reset_statistics()
    x = first(da.from_array(given, chunks=(2, 12), name=False))
    y = x.map_blocks(running_total, drop_axis=1, dtype=float)
    np.testing.assert_array_equal(y.compute(scheduler="sync"), first(given).sum(axis=1) * 2)
    assert len(counted) == 10
    breaks = {name: count for (name, why), count in statistics().breaks.items() if "many" in why}
    assert breaks == {"running_total": 3}


def sorted_and_scaled(x: Any) -> Any:
    return np.sort(x, axis=-1) * FACTOR


FACTOR = 2.0


def test_refusals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that may not be recorded are gone through once, until they are other functions."""
    seen, examine = [], check.examine
    monkeypatch.setattr(check, "examine", lambda *args: (seen.append(args[0]), examine(*args)))

    def compute() -> Any:
        x = da.ones((4, 6), chunks=(2, 6)) + 1
        return (x.map_blocks(sorted_and_scaled, dtype=float) + 1).sum().compute(scheduler="sync")

    assert [compute() for _ in range(3)] == [24 * 5.0] * 3
    assert seen == [sorted_and_scaled]
    monkeypatch.setattr(sorted_and_scaled, "__code__", (lambda x: abs(x) * FACTOR).__code__)
    reset_statistics()
    assert compute() == 24 * 5.0
    assert set(seen) == {sorted_and_scaled}
    assert len(seen) > 1
    assert not [why for _, why in statistics().breaks if "your function" in why]


def test_what_cannot_be_marked() -> None:
    with pytest.raises(TypeError, match="len cannot be marked: mark a function that calls it"):
        fusible(len)


# Callables among the arguments -----------------------------------------------------------------


class Counter:
    """Something with state."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, x: Any) -> Any:
        self.count += 1
        return x + self.count

    def __call__(self, x: Any) -> Any:
        return self.add(x)


def calls(x: Any, g: Any) -> Any:
    return g(x) * 2


def same_after(make: Callable[[da.Array, Any], Any], state: Callable[[], Any],
               seen: Callable[[Any], Any]) -> None:  # fmt: skip
    """Check results and state of something that tasks change, against plain dask."""
    with disable():
        one = state()
        expected = outcome(lambda x: make(x, one))[0]
    two = state()
    found = outcome(lambda x: make(x, two))[0]
    np.testing.assert_array_equal(found, expected)
    assert seen(two) == seen(one)


WAYS: dict[str, Callable[[da.Array, Any], Any]] = {
    "argument": lambda x, g: x.map_blocks(calls, g, dtype=float),
    "keyword": lambda x, g: x.map_blocks(calls, g=g, dtype=float),
    "partial": lambda x, g: x.map_blocks(partial(calls, g=g), dtype=float),
    "bound method": lambda x, g: x.map_blocks(g.add, dtype=float),
    "object": lambda x, g: x.map_blocks(g, dtype=float),
    "map_overlap": lambda x, g: x.map_overlap(calls, depth=0, boundary="none", g=g, dtype=float),
    "blockwise": lambda x, g: da.blockwise(calls, "ij", x, "ij", g=g, dtype=float),
    "apply_gufunc": lambda x, g: da.apply_gufunc(calls, "()->()", x, g=g, output_dtypes=float),
    "closure": lambda x, g: x.map_blocks(lambda b: g(b) * 2, dtype=float),
}


@pytest.mark.parametrize("way", WAYS)
def test_callables_with_state(way: str) -> None:
    same_after(lambda x, g: WAYS[way](x + 1, g), Counter, lambda counter: counter.count)


@pytest.mark.parametrize("way", WAYS)
def test_random_numbers_are_drawn_for_each_chunk(way: str) -> None:
    def state() -> Any:
        rng = np.random.default_rng(3)

        class Noise:
            def add(self, x: Any) -> Any:
                return x + rng.random(x.shape)

            def __call__(self, x: Any) -> Any:
                return self.add(x)

        return Noise()

    same_after(lambda x, g: WAYS[way](x + 1, g), state, lambda noise: None)


def keeps(x: Any, keep: Any) -> Any:
    keep(x)
    return x * 2


def test_what_keeps_chunks_gets_arrays() -> None:
    same_after(lambda x, seen: (x + 1).map_blocks(keeps, seen.append, dtype=float), list,
               lambda seen: [type(each) for each in seen])  # fmt: skip


def test_lists_among_the_arguments() -> None:
    def extends(x: Any, seen: Any) -> Any:
        seen.append(x.shape)
        return x * len(seen)

    same_after(lambda x, seen: (x + 1).map_blocks(extends, seen, dtype=float), list, len)


def by_name(x: Any, bounds: Any) -> Any:
    for name in bounds.get("names", ()):
        x = x * bounds[name]
    return np.clip(x, bounds["low"], bounds["high"])


@pytest.mark.parametrize(
    "bounds",
    [
        {"low": -2, "high": 3.5},
        {"low": None, "high": np.float32(3)},
        {"high": -1.0, "low": -5.0, "names": ["high", "low"]},
        {"low": -2, "high": np.arange(3.0)},
        {"low": np.zeros((1, 3)), "high": [1.0, 2.0, 3.0]},
        {"low": -2, "high": 2, 3: {"nested": (1, None, "x")}},
        {"low": -2, "high": object()},
        {"low": -2},
    ],
)
def test_dictionaries_among_the_arguments(bounds: dict[Any, Any]) -> None:
    compare(lambda x: (x + 1).map_blocks(by_name, bounds, dtype=float) * 2)
    compare(lambda x: (x + 1).map_blocks(by_name, bounds=bounds, dtype=float) * 2)
    obscure = any(isinstance(v, np.ndarray) or type(v) is object for v in bounds.values())
    assert bool(statistics().launches) is ("high" in bounds)
    assert obscure is any(b.kind is GraphBreak.UNCOMPARABLE for _, b in statistics().breaks)


def test_arguments_that_cannot_be_compared_leave_one_call_alone() -> None:
    compare(lambda x: ((x + 1) / 2).map_blocks(by_name, {"low": np.zeros((1, 3)), "high": [9.0]},
                                               dtype=float) * 2 - x)  # fmt: skip
    assert statistics().launches == 2 * 4
    assert {str(reason) for _, reason in statistics().breaks} == {
        "an object, or a dictionary of arrays, among the arguments"
    }


def test_plans_are_for_one_dictionary_s_values() -> None:
    x = da.ones((4, 6), chunks=(4, 3)) * 1.5
    bounds: dict[str, Any] = {"low": 0, "high": 1}
    others = [{"low": 0, "high": 2}, {"high": 1.75, "low": 0}, {"low": 0.0, "high": 1.0}]
    program = [(x + 1).map_blocks(by_name, each, dtype=float) * 2 for each in (bounds, *others)]
    for high in (1, 3, 1.25):
        bounds["high"] = high
        found = dask.compute(*program, scheduler="sync")
        expected = [min(2.5, each["high"]) * 2 for each in (bounds, *others)]
        assert [float(each[0, 0]) for each in found] == expected
    assert statistics().launches > 0


def changed(x: Any, seen: dict[str, Any]) -> Any:
    seen["chunks"] = seen.get("chunks", 0) + 1
    return x * seen["chunks"]


def taken_out(x: Any, seen: dict[str, Any]) -> Any:
    return x * seen.pop("factor", 3)


@pytest.mark.parametrize("function", [changed, taken_out])
def test_dictionaries_that_functions_change(function: Any) -> None:
    same_after(lambda x, seen: (x + 1).map_blocks(function, seen, dtype=float),
               lambda: {"factor": 2}, dict)  # fmt: skip


def test_dask_s_piecewise() -> None:
    def twice(values: Any) -> Any:
        return values * 2

    def minus(values: Any, other: float) -> Any:
        return values - other

    for choices, args in (
        ([1, -2.5], ()), ((1, 2, True), ()), ([twice, 3], ()), ([np.negative, twice, 1.0], ()),
        ([minus, 3], (2.0,)), ([1, 2], (2.0,)), ([1, 2, 3, 4], ()), ([None, 1], ()),
    ):  # fmt: skip
        reset_statistics()
        compare(lambda x, c=choices, a=args: da.piecewise(x * 2, [x < -3, x > 2], c, *a) + 1)
        if not args and all(type(each) in (int, float, bool) for each in choices):
            assert statistics().launches == 4 or len(choices) == 4


def own_mean(x: Any, axis: Any = None) -> Any:
    return x.mean(axis=axis)


@pytest.mark.parametrize(
    ("reduction", "options", "launches"),
    [
        (np.sum, {}, 1),
        (np.mean, {}, 1),
        (np.std, {"ddof": 1}, 1),
        (np.max, {"dtype": "f8"}, 0),  # an error
        (np.nansum, {"dtype": np.dtype("f4")}, 1),
        (np.median, {}, 0),
        (own_mean, {}, 1),
        (lambda x, axis=None: x.max(axis) - x.min(axis), {}, 1),
        (lambda x, axis=None: np.unique(x).sum() + x.sum(axis), {}, 0),
    ],
)
@pytest.mark.parametrize("axes", [{0: 2, 1: 3}, {1: 2}, {0: 5}, {0: 3, 1: 4}])
def test_dask_s_coarsen(reduction: Any, options: Any, launches: int, axes: dict[int, int]) -> None:
    reset_statistics()
    compare(lambda x: da.coarsen(reduction, x * 2 + 1, dict(axes), trim_excess=True, **options) - 1)
    is_empty = axes.get(0, 1) > 4 or axes.get(1, 1) > 3
    assert statistics().launches >= (0 if is_empty else launches)


def test_what_coarsen_cannot_record_is_called_between_kernels() -> None:
    def own(x: Any, axis: Any = None) -> Any:
        return np.sort(x, axis=axis[0]).sum(axis=axis) if axis else x.sum()

    reset_statistics()
    x = da.from_array(np.arange(48.0).reshape(8, 6), chunks=(4, 6))
    found = (da.coarsen(own, da.sqrt(x * 2 + 1) - 3, {0: 2, 1: 3}) * 2 - 1).compute()
    with gpusched.disable():
        expected = (da.coarsen(own, da.sqrt(x * 2 + 1) - 3, {0: 2, 1: 3}) * 2 - 1).compute()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert statistics().launches >= 4 and not statistics().unfused_tasks


def assigned(a: Any) -> Any:
    out = np.zeros_like(a)
    out[1:] = a[1:] / a[:-1]
    return out


@pytest.mark.parametrize(
    ("function", "parts"),
    [(lambda a: np.gradient(a, axis=0) / 2, 3), (lambda a: a + np.roll(a, 1, 0), 2), (assigned, 2)],
)
def test_parts_of_what_a_function_makes_are_computed_once(function: Any, parts: int) -> None:
    reset_statistics()
    compare(lambda x: x.map_blocks(function, dtype="f8"))
    counts = statistics()
    assert counts.fused_tasks and counts.launches <= parts * counts.fused_tasks


def test_several_piecewise_in_one_graph() -> None:
    """Tasks of one form differ in what they choose from."""

    def program(x: Any) -> Any:
        y = x * 2
        each = [[1, 2], [3.5, -1], [np.negative, 7], [1, 2, 3]]
        return da.stack([da.piecewise(y, [x < -3, x > 2], choices) + 1 for choices in each])

    compare(program)


def doubled(x: Any) -> Any:
    return x * 2


def test_a_safe_function_as_an_argument_is_fused() -> None:
    compare(lambda x: (x + 1).map_blocks(calls, doubled, dtype=float))
    assert statistics().launches > 0


# What functions read from outside -----------------------------------------------------------------

scale = 2.0


def scaled(x: Any, offset: float = 1.0) -> Any:
    return np.sqrt(abs(x)) * scale + offset


def total(x: da.Array) -> float:
    return float(x.map_blocks(scaled, dtype=float).sum().compute(scheduler="sync"))


@pytest.mark.filterwarnings("ignore:numpy.sqrt is not NumPy's:RuntimeWarning")
def test_changes_of_globals_defaults_and_callees(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.ones(6, chunks=3)
    assert total(x) == 18
    monkeypatch.setattr("tests.graph.test_user_functions.scale", 3.0)
    assert total(x) == 24
    monkeypatch.setattr(scaled, "__defaults__", (0.0,))
    assert total(x) == 18
    monkeypatch.setattr(np, "sqrt", lambda values: values * 7)
    assert total(x) == 126


tenths = 3.0


@gpusched.kernel
def in_tenths(x):
    return x * 10 + tenths


def by_kernel(x: Any) -> Any:
    return in_tenths(x) * 2


def test_plans_notice_changes_of_what_kernels_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (optimized,) = dask.optimize((da.ones(6, chunks=3) + 0).map_blocks(by_kernel, dtype=float))
    with disable():
        np.testing.assert_array_equal(optimized.compute(scheduler="sync"), np.full(6, 26.0))
        monkeypatch.setattr(f"{__name__}.tenths", 4.0)
        np.testing.assert_array_equal(optimized.compute(scheduler="sync"), np.full(6, 28.0))


@pytest.mark.filterwarnings("ignore:numpy.sqrt is not NumPy's:RuntimeWarning")
def test_plans_are_for_values_as_they_are_when_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.ones(6, chunks=3)
    graph = x.map_blocks(scaled, dtype=float)
    (optimized,) = dask.optimize(graph)
    with disable():
        assert float(optimized.sum().compute(scheduler="sync")) == 18
        monkeypatch.setattr("tests.graph.test_user_functions.scale", 3.0)
        assert float(optimized.sum().compute(scheduler="sync")) == 24
        monkeypatch.setattr("tests.graph.test_user_functions.scale", np.arange(3.0))
        assert float(optimized.sum().compute(scheduler="sync")) == 12
        monkeypatch.setattr(np, "sqrt", lambda values: values * 7)
        monkeypatch.setattr("tests.graph.test_user_functions.scale", 1.0)
        assert float(optimized.sum().compute(scheduler="sync")) == 48


def change_scale(value: float) -> None:
    importlib.import_module(__name__).scale = value  # type: ignore[attr-defined]


@pytest.fixture(params=[True, False], ids=["processes", "threads"])
def worker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Start a worker in a process of its own, or in this one."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=request.param, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(dask.config.set, SETTINGS)
        yield client
    change_scale(2.0)


@pytest.mark.slow
def test_workers_notice_changes_of_what_functions_read(worker: Any) -> None:
    blocks = da.ones(6, chunks=3).map_blocks(scaled, dtype=float)
    assert float(blocks.sum().compute()) == 18
    (counts,) = worker.run(statistics).values()
    assert counts.launches > 0
    worker.run(change_scale, 3.0)
    assert float(blocks.sum().compute()) == 24


# Scalars and arrays without axes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda a: (a * 2)[3, 4].astype("i4"),
        lambda a: (a * 2 + 1).sum(axis=1)[3],
        lambda a: (a * 2)[3, 4],
        lambda a: (a * 2)[3, 4] + 1,
        lambda a: (a * 2 + 1).sum(),
        lambda a: (a * 2 + 1).sum().astype("f4"),
        lambda a: (a * 2 + 1).sum(keepdims=True)[0, 0],
        lambda a: da.where(a[0, 0] > 0, a[0, 0], 1) * 2,
        lambda a: (a + 1).mean(axis=0)[2].round(2),
        lambda a: da.sqrt(abs(a))[0][1].clip(0, 1),
        lambda a: (a + 1).max().map_blocks(np.nan_to_num, dtype=float),
    ],
)
def test_the_kind_of_a_result_without_axes(make: Any) -> None:
    compare(make)


def zero_axes(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return getattr(np, name)(x, *args, **kwargs)

    call.__name__ = name
    return fusible(call)


@pytest.mark.parametrize(
    "function",
    [zero_axes(*each) for each in [
        ("squeeze",), ("transpose",), ("real",), ("real_if_close",), ("copy",), ("round",),
        ("nan_to_num",), ("clip", 0, 1), ("zeros_like",), ("sum",), ("max",), ("expand_dims", 0),
        ("isclose", 1.0), ("where", 1.0, 2.0), ("broadcast_to", (2,)), ("mean",), ("exp",),
        ("any",), ("cumsum",), ("ravel",),
    ]],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_functions_of_no_axes(function: Any, kind: str) -> None:
    def first(x: Any) -> Any:
        return function((x + 1)[0, 0] if kind == "scalar" else (x + 1)[0, :1].reshape(()))

    fusible(first)

    def make(x: da.Array) -> Any:
        one = x[:, :3].rechunk((4, 3))
        return dask.delayed(first)(one.to_delayed()[0, 0])

    def run(x: da.Array) -> Any:
        return da.from_delayed(make(x), (), dtype=float)

    compare(run)


# The order of calls -------------------------------------------------------------------------------


def adds_in_place(t: Any) -> Any:
    t[:] = t + 100
    return t


@pytest.mark.parametrize(
    "make",
    [
        lambda a: (a * 2 + 1) + a.map_blocks(adds_in_place, dtype=float),
        lambda a: a.map_blocks(adds_in_place, dtype=float) + (a * 2 + 1),
        lambda a: (a + 1)[1:] + (a + 1).map_blocks(adds_in_place, dtype=float)[1:],
        lambda a: (a.T * 2).T + (a + 1).map_blocks(adds_in_place, dtype=float) * a,
    ],
)
def test_calls_are_not_moved_around_one_that_changes_its_input(make: Any) -> None:
    compare(make, runs=1)


def test_two_results_are_two_arrays() -> None:
    def twice(x: Any) -> Any:
        return x + 1, x + 1, x.astype(x.dtype)

    given = values()
    step = ProgramStep(twice, (Register(0),), {}, recorded=True, replayed=True)
    program = Program((step,), 1)
    for _ in range(2):
        first, second, third = program(given)
        assert not np.may_share_memory(first, second)
        assert not np.may_share_memory(third, given)
    assert statistics().launches > 0


REPLACED: dict[str, Callable[..., Any]] = {
    "multiply": lambda *args: np.add(*args),
    "sqrt": np.square,
    "where": lambda *args: args[1],
    "sum": lambda a, **options: a,
}
"""NumPy's functions, and what a program may have put in the place of them."""


@pytest.mark.parametrize("name", REPLACED)
def test_functions_of_numpys_that_are_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(x: da.Array) -> da.Array:
        return (x + len(name)) * 3  # Another plan for each name.

    monkeypatch.setattr(np, name, REPLACED[name])
    with pytest.warns(RuntimeWarning, match=rf"numpy\.{name} .* nothing is fused"):
        chain(da.from_array(values(), chunks=3)).compute(scheduler="sync")
    compare(lambda x: x.map_blocks(lambda b: np.nan_to_num(b) * np.sqrt(abs(b)), dtype="f8"))
    compare(lambda x: (x.sum(axis=0) + 1) / 2)
    compare(chain)
    reset_statistics()
    outcome(chain)
    assert not statistics().recordings
    assert [reason for _, reason in statistics().breaks] == [
        f"numpy.{name} is not NumPy's, so that no kernel can be compiled"
    ]
    monkeypatch.undo()
    reset_statistics()
    outcome(chain)
    assert statistics().launches


@pytest.mark.parametrize(
    "reduced",
    [lambda x: np.nanmax(x, axis=()), lambda x: x.max(axis=()), lambda x: np.sum(x, axis=())],
)
def test_a_reduction_over_no_axes_is_an_array_of_its_own(reduced: Any) -> None:
    compare(lambda x: x.map_blocks(reduced, dtype=float).map_blocks(adds_in_place, dtype=float))


@pytest.mark.parametrize("reduced", [da.nanmin, da.nanmax, da.min, da.sum, da.nansum, da.any])
def test_reductions_of_dasks_over_no_axes(reduced: Any) -> None:
    compare(lambda x: reduced(x * 2 + 1, axis=()))


def adds_hundred(t: Any) -> Any:
    t += 100
    return t * 2


def sorted_beside(first: Any, second: Any) -> Any:
    return np.sort(first, axis=0) + second


SHOWN: dict[str, Callable[[da.Array], da.Array]] = {
    "a function of the user's": lambda c: c.map_blocks(lambda t: t[::-1]),
    "a function of numpy's": lambda c: c.map_blocks(np.flip),
    "dask's": lambda c: c[::-1],
    "itself": lambda c: c,
}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_change_of_a_view_is_seen_by_who_reads_what_it_shows(shown: str) -> None:
    def changed(x: da.Array) -> da.Array:
        c = x * 2 + 1
        after = SHOWN[shown](c).map_blocks(adds_hundred)
        return da.map_blocks(sorted_beside, c, after, dtype=float)

    def shows(x: da.Array) -> da.Array:
        c = x * 2 + 1
        after = c.map_blocks(adds_hundred)
        return da.map_blocks(sorted_beside, SHOWN[shown](c), after, dtype=float)

    compare(changed)
    if shown != "dask's":  # Its views are made in an order that is dask's to choose.
        compare(shows)


def test_a_function_that_is_alone_in_its_task_is_counted() -> None:
    seen: list[int] = []

    def notes(t: Any) -> Any:
        seen.append(t.size)
        return t + 1

    compare(lambda x: x.map_blocks(notes, dtype=float))
    reset_statistics()
    outcome(lambda x: x.map_blocks(notes, dtype=float))
    (((name, reason), count),) = statistics().breaks.items()
    assert (name, count) == ("notes", 2)
    assert reason.startswith("your function uses .append of seen, a list")


# Objects that are equal and do different things ---------------------------------------------------


class Named:
    """Equal by its name."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named)

    def __hash__(self) -> int:
        return 1


class LikePartial:
    """Has the attributes of a partial application, and one more."""

    def __init__(self, factor: float) -> None:
        self.func, self.args, self.keywords, self.factor = abs, (), {}, factor

    def __call__(self, x: Any) -> Any:
        return self.func(x) * self.factor


class Unit(int):
    """A whole number of something."""

    def __new__(cls, factor: float) -> Unit:
        made = super().__new__(cls, 3)
        made.factor = factor
        return made

    factor: float

    def __rmul__(self, other: Any) -> Any:
        return other * self.factor


@pytest.mark.parametrize("kind", [Named, LikePartial])
def test_callables_that_are_equal_are_two(kind: Any) -> None:
    one, other = kind(2.0), kind(5.0)
    compare(
        lambda x: da.concatenate([(x + 1).map_blocks(f, dtype=float) + 1 for f in (one, other)])
    )
    compare(lambda x: da.concatenate(
        [(x + 1).map_blocks(calls, f, dtype=float) + 1 for f in (one, other)]
    ))  # fmt: skip


def times(x: Any, unit: Any) -> Any:
    return x * unit + 1


def test_numbers_of_derived_classes_are_objects() -> None:
    compare(lambda x: da.concatenate(
        [(x + 1).map_blocks(times, Unit(f), dtype=float) for f in (2.0, 5.0)]
    ))  # fmt: skip


# What a function does beside computing ------------------------------------------------------------


class CountedError(Exception):
    made = 0

    def __init__(self, *args: Any) -> None:
        CountedError.made += 1
        super().__init__(*args)


class CountedFloat(np.float64):
    made = 0

    def __new__(cls, *args: Any) -> CountedFloat:
        CountedFloat.made += 1
        return super().__new__(cls, *args)


def raises_its_own(x: Any) -> Any:
    if x.ndim == 2:
        raise CountedError("two")
    return x * 2


def raises_its_own_class(x: Any) -> Any:
    if x.ndim == 2:
        raise CountedError
    return x * 2


def makes_its_own(x: Any) -> Any:
    return x * CountedFloat(2.0) + 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (raises_its_own, CountedError),
        (raises_its_own_class, CountedError),
        (makes_its_own, CountedFloat),
    ],
)
def test_what_is_made_is_made_as_often(function: Any, kind: Any) -> None:
    counts = []
    for switch in (disable, enable):
        kind.made = 0
        with switch():
            outcome(lambda x: (x + 1).map_blocks(function, meta=np.empty((0, 0)), dtype=float))
        counts.append(kind.made)
    assert counts[0] == counts[1] > 0


def counting() -> Callable[[Any], Any]:
    calls = [0]

    def counted(x: Any) -> Any:
        calls[0] += 1
        return x * calls[0]

    return counted


def test_each_task_that_is_sent_has_functions_as_they_were_sent() -> None:
    """Plain dask unpickles a function for each task, with a counter or generator of its own."""
    steps = (
        ProgramStep(np.add, (Register(0), 1), {}, recorded=True),
        ProgramStep(counting(), (Register(1),)),
    )
    sent = pickle.dumps(Program(steps, 1))
    one, other = pickle.loads(sent), pickle.loads(sent)
    for program in (one, other, refer(one.payload()[0])):
        np.testing.assert_array_equal(program(values()), values() + 1)
    np.testing.assert_array_equal(one(values()), (values() + 1) * 2)
    assert statistics().recordings == 1


def test_so_have_methods_of_objects_of_libraries() -> None:
    generator = np.random.default_rng(1)
    steps = (
        ProgramStep(np.add, (Register(0), 1), {}, recorded=True),
        ProgramStep(generator.permutation, (Register(1),)),
    )
    sent = pickle.dumps(Program(steps, 1))
    found = [pickle.loads(sent)(values()) for _ in range(3)]
    expected = generator.permutation(values() + 1)
    for each in found:
        np.testing.assert_array_equal(each, expected)


def changes_where_reshape_copies_nothing(x: Any) -> Any:
    flat = x.reshape(-1)
    flat += 1
    return x


def layout(x: Any) -> Any:
    return np.array([[*x.strides, x.flags.owndata]])


CUTS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda x: x[::2],
    "columns": lambda x: x[:, :2],
    "backwards": lambda x: x[:, ::-1],
    "transposed": lambda x: x.T[:, ::2],
    "new axis": lambda x: x[None, ::2][0],
    "rows": lambda x: x[[2, 0]],
    "broadcast": lambda x: da.broadcast_to(x[:1], x.shape),
    "real": lambda x: (x + 1j * x).real,
}


@pytest.mark.parametrize("cut", CUTS)
def test_views_of_computed_chunks_are_numpy_s(cut: str) -> None:
    """Functions that are not recorded may see whether they get a view."""
    compare(lambda x: CUTS[cut](x * 1).map_blocks(changes_where_reshape_copies_nothing))
    compare(lambda x: CUTS[cut](x * 1).map_blocks(layout, dtype=int))


@pytest.mark.parametrize("function", [isinstance, np.array, np.asanyarray, np.asarray])
def test_chunks_of_another_library_are_not_taken_for_numpys(function: Any) -> None:
    """CuPy refuses such calls, or answers otherwise."""
    recorder = Recorder(replace(HOST, can=replace(HOST.can, host_memory=False)))
    lazy = LazyChunk(recorder, recorder.leaf(values()))
    with pytest.raises(UnrecordableError, match="another library"):
        stand_in(function, recorder)(*((lazy, np.ndarray) if function is isinstance else (lazy,)))
    recorder.moved = True
    assert stand_in(isinstance, recorder)(lazy, np.ndarray)
