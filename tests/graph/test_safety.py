"""What is shown safe for lazy chunks, and what is not."""

from __future__ import annotations

import contextlib
import copy
import math
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import pytest

from gpusched.graph.safety.check import Code, Examination
from gpusched.graph.safety.examination import LIBRARY, examined, kind_of
from gpusched.graph.safety.instructions import TABLE as INSTRUCTIONS
from gpusched.graph.safety.instructions import parts as parts_of
from gpusched.graph.safety.kinds import Kind, Known
from gpusched.graph.safety.outside import Outside
from gpusched.record.bytecode import instructions
from tests.graph.examining import assert_numpys, why_unsafe

FACTOR = 2.5
TABLE = np.arange(5)


def helper(x: Any) -> Any:
    return np.exp(-x)


def totals(skip: bool) -> tuple[Any, Any]:
    if skip:
        return np.nansum, np.nanmean
    return np.sum, np.mean


def gives_functions(x: Any, skip: bool = True) -> Any:
    total, mean = totals(skip)
    return total(x, axis=0) - mean(x - 1, axis=0)


def returns_functions(x: Any) -> Any:
    return totals(bool(x.ndim))


def stencil(z: Any) -> Any:
    dx = z[1:-1, 2:] - z[1:-1, :-2]
    return np.hypot(dx, dx * FACTOR).astype(np.float32)


def with_options(x: Any, scale: float = 2.0, axis: int = 0) -> Any:
    return (x * scale).sum(axis=axis, keepdims=True)


def loops(x: Any) -> Any:
    total = x
    for _ in range(3):
        total = total + helper(x)
    return total


def ignoring(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log(x)


def adds_in_place(x: Any) -> Any:
    total = x + 1
    total += x
    return total


def accumulates(x: Any, n: int = 3) -> Any:
    total = 0
    for k in range(n):
        total += x * k
    return total


def shapes(x: Any) -> Any:
    rows, columns = x.shape
    if rows > 3 and 0 < columns < 100 and x.dtype.kind in "fi":
        return x.T[: rows - 1, ::-1] / np.finfo(x.dtype).eps
    return x.astype(np.float32).sum(axis=(0, 1), keepdims=True)


def parts(x: Any) -> Any:
    fraction, whole = np.modf(x)
    whole = whole * 2
    whole *= 2
    return fraction if x.ndim else whole, x.shape[0]


def forwards(x: Any, *args: Any, **options: Any) -> Any:
    return np.sum(x, *args, **options) + np.max(x, axis=0, keepdims=True)


def calls_with_names(x: Any) -> Any:
    return forwards(x, axis=0, keepdims=True) + with_options(x, axis=1, scale=3)


def asserts(x: Any, axis: int | None = None) -> Any:
    if not x.ndim > 0:
        raise AssertionError(f"too few axes: {x.ndim}")
    if axis is not None and axis >= x.ndim:
        raise ValueError(f"no axis {axis}")
    return np.max(x, axis=axis) if axis is not None else x.max()


def whiles(x: Any) -> Any:
    k = 0
    while k < 3:
        if k == 1:
            k += 2
            continue
        x = x + k
        k += 1
    return x


def pairs(x: Any, weights: tuple[float, ...] = (1.0, 2.0)) -> Any:
    total = x * 0
    for k, weight in enumerate(weights):
        total += x * weight**k
    for left, right in zip(weights, (3, 4), strict=False):
        total -= left * right
    return total


def nested_contexts(x: Any) -> Any:
    with np.errstate(divide="ignore"), np.errstate(invalid="ignore"):
        for _ in range(2):
            x = np.log(x)
        return -x


def reduces(x: Any) -> Any:
    return np.add.reduce(x, axis=0) + np.maximum.reduce(x, axis=0)


def numbers(x: Any) -> Any:
    scale = math.sqrt(2) * float(len(x)) + max(x.shape) + np.float32(2)
    return +x * scale if x.ndim != 3 else ~(x > scale)


def or_default(x: Any, scale: float | None = None) -> Any:
    return x * (scale or FACTOR)


def checks(x: Any) -> Any:
    if not isinstance(x, (np.ndarray, list)):
        raise TypeError("no array")
    return np.array(np.asarray(np.asanyarray(x), dtype=float), np.float32)


def handles(x: Any) -> Any:
    try:
        x = x + 1
    except ValueError:
        x = x * 2
    return x


def asks_abstract_type(x: Any) -> Any:
    return x if isinstance(x, Sequence | Integral) or not isinstance(x, Iterable) else x + 1


SAFE = [stencil, with_options, loops, ignoring, lambda x: x + 1, adds_in_place, accumulates, shapes,
        parts, forwards, calls_with_names, asserts, whiles, pairs, nested_contexts, reduces,
        numbers, or_default, checks, gives_functions, handles, asks_abstract_type]  # fmt: skip


@pytest.mark.parametrize("function", SAFE)
def test_safe(function: Any) -> None:
    assert why_unsafe(function) is None


def assigns(x: Any) -> Any:
    x[0] = 1
    return x


class Decides(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return len(SEEN) > 0


class Odd(metaclass=Decides):
    pass


SEEN: list[int] = []


def asks_type(x: Any) -> Any:
    return x if isinstance(x, Odd) else x + 1


def asks_type_of_a_function(x: Any) -> Any:
    return x if isinstance(helper, types.FunctionType) else x + 1


def converts(x: Any) -> Any:
    return np.array(x, copy=False) + 1


def converts_by_an_array(x: Any) -> Any:
    return np.asarray(x, x) + 1


def random(x: Any) -> Any:
    return x + np.random.random()  # noqa: NPY002


def reads_table(x: Any) -> Any:
    return x + TABLE


def prints(x: Any) -> Any:
    print(x)
    return x


def remembers(x: Any, seen: list[Any] = []) -> Any:  # noqa: B006
    seen.append(x)
    return x


def even(x: Any, n: int = 2) -> Any:
    return x if n == 0 else odd(x, n - 1)


def odd(x: Any, n: int = 1) -> Any:
    return x + 1 if n == 0 else even(x, n - 1)


def changes_input(x: Any) -> Any:
    x += 1
    return x


def changes_what_a_view_shows(x: Any) -> Any:
    t = x * 2
    view = t[1:]
    t += 1
    return view


def changes_in_a_callee(x: Any) -> Any:
    t = x * 2
    changes_input(t)
    return t


def changes_input_in_a_callee(x: Any) -> Any:
    return changes_input(x)


def changes_what_a_callee_keeps(x: Any) -> Any:
    t = x * 2
    view = identity(t)
    t += 1
    return view


def identity(x: Any) -> Any:
    return x


def changes_after_a_loop(x: Any) -> Any:
    t = x * 2
    view = x
    for _ in range(2):
        t += 1
        view = t.T
    return view


def ends(x: Any) -> Any:
    try:
        return x + 1
    finally:
        prints(x)


def suppresses(x: Any) -> Any:
    with contextlib.suppress(ValueError):
        x = x + 1
    return x


def formats(x: Any) -> Any:
    return x + len(f"{x}")


def formats_with_percent(x: Any) -> Any:
    return x + len("%s" % x)  # noqa: UP031


def out_by_position(x: Any) -> Any:
    t = x * 2
    return np.clip(x, 0, 1, t)


def out_by_name(x: Any) -> Any:
    t = x * 2
    return np.add(x, 1, out=t)


def where_by_name(x: Any) -> Any:
    return np.add(x, 1, where=x > 0)


def ufunc_of_too_many(x: Any) -> Any:
    return np.add(x, 1, x)


def copies_nothing(x: Any) -> Any:
    return np.nan_to_num(x, copy=False)


def of_a_scalar(x: Any) -> Any:
    return np.float64(x) * 2


def yields(x: Any) -> Any:
    yield x


def sets_global(x: Any) -> Any:
    global FACTOR
    FACTOR = 3
    return x


def may_have_no_value(x: Any, n: int = 3) -> Any:
    for k in range(n):
        y = x * k
    return y


def ignores_warnings(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.log(x)


def ignores_warnings_of_all(x: Any) -> Any:
    warnings.simplefilter("ignore")
    return np.log(x)


HALF = 0.5


def asks_for_a_number(x: Any, number: float = HALF) -> Any:
    return x if number is HALF else x + 1


def formats_its_own(x: Any) -> Any:
    return x + len("%s" % np.arange(3.0))  # noqa: UP031


def formats_by_one_of_two(x: Any) -> Any:
    return x + len(("%s" if x.ndim == 2 else "%r") % np.arange(3.0))


def formats_by_an_item(x: Any) -> Any:
    kinds = dict(enumerate(["%s", "%r"]))
    return x + len(kinds[x.ndim - 1] % np.arange(3.0))


def formats_by_a_key(x: Any) -> Any:
    return x + max([len(each % np.arange(3.0)) for each in {"%s": 1}])


def formats_by_what_a_callee_returns(x: Any) -> Any:
    def chosen() -> str:
        return "%s"

    return x + len(chosen() % np.arange(3.0))


def raises_with_percent(x: Any, unit: str = "%") -> Any:
    if x.ndim == 7:
        raise ValueError(f"{x.ndim}{unit}, not 100 %")
    if x.ndim == 8:
        raise ValueError("not 100 %")
    return x % 3 + x % (2 * np.pi) % (x + 1)


UNSAFE = {
    formats_by_one_of_two: "formats a string",
    formats_by_an_item: "uses a string with %",
    formats_by_a_key: "uses a string with %",
    formats_by_what_a_callee_returns: "uses a string with %",
    asks_for_a_number: "asks whether number, a float is HALF, a float",
    formats_its_own: "formats a string",
    formats_with_percent: "formats a string",
    ignores_warnings: "calls catch_warnings, which is not recorded",
    ignores_warnings_of_all: "calls simplefilter, which",
    assigns: "assigns to elements",
    asks_type: "asks whether a value is Odd, a Decides",
    formats: "formats a string",
    random: "calls RandomState.random",
    prints: "calls print",
    remembers: "uses .append of seen, a list",
    changes_input: "changes an array in place",
    changes_input_in_a_callee: "calls changes_input, which changes an array in place",
    ends: "calls prints, which calls print",
    suppresses: "calls suppress",
    out_by_position: "calls clip with arguments that may change others",
    where_by_name: "calls add with where=",
    ufunc_of_too_many: "calls add with arguments that may change others",
    copies_nothing: "calls nan_to_num with copy=",
    yields: "is a generator",
    sets_global: "sets a global variable",
}


@pytest.mark.parametrize("function", UNSAFE)
def test_not_shown_safe(function: Any) -> None:
    reason = why_unsafe(function)
    assert reason is not None
    assert UNSAFE[function] in reason


STOPS = {
    asks_type_of_a_function: "asks of what type a function is",
    changes_after_a_loop: "changes a chunk in place",
    converts: "makes an array of one with more than a dtype",
    converts_by_an_array: "makes an array of one with more than a dtype",
    of_a_scalar: "converts a chunk to a NumPy array",
    returns_functions: "returns a tuple",
}


@pytest.mark.parametrize("function", STOPS)
def test_what_lazy_chunks_do_not_know_ends_the_recording(function: Any) -> None:
    assert_numpys(function, STOPS[function])


NUMPYS = [changes_in_a_callee, changes_what_a_callee_keeps, changes_what_a_view_shows, even,
          may_have_no_value, out_by_name, raises_with_percent]  # fmt: skip


@pytest.mark.parametrize("function", NUMPYS)
def test_what_is_recorded_is_numpys(function: Any) -> None:
    assert_numpys(function)


@pytest.mark.parametrize("function", [np.linalg.svd, len])
def test_functions_of_libraries_are_not_the_users(function: Any) -> None:
    assert why_unsafe(function) == LIBRARY


def test_the_reason_names_the_line() -> None:
    line = assigns.__code__.co_firstlineno + 1
    assert f"line {line})" in str(why_unsafe(assigns))


def test_what_arguments_are_counts() -> None:
    def chosen(x: Any, times: int) -> Any:
        for _ in range(times):
            x = x + 1
        return x

    def call(x: Any, function: Any) -> Any:
        return function(x) * 2

    assert examined(chosen, [Kind.OTHER, kind_of(2)], {}).reason is None
    assert examined(call, [Kind.OTHER, kind_of(helper)], {}).reason is None
    assert "print" in str(examined(call, [Kind.OTHER, kind_of(print)], {}).reason)
    assert examined(partial(call, function=np.exp), [Kind.OTHER], {}).reason is None
    assert examined(partial(call, function=[].append), [Kind.OTHER], {}).reason is not None


def test_what_is_read_from_outside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(stencil, [Kind.OTHER], {}).outside
    assert found.holds()
    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.FACTOR", 2.5 + 0)
        assert found.holds()
        patch.setattr(f"{__name__}.FACTOR", 3)
        assert not found.holds()
    assert found.holds()
    with monkeypatch.context() as patch:
        patch.setattr(np, "hypot", np.add)
        assert not found.holds()


# What looks like something that is known, and is an object of its own -----------------------------


class Derived(np.float64):
    """A number that may do anything."""


class Module(types.ModuleType):
    @property
    def factor(self) -> float:
        """Return what no dictionary holds."""
        return 3.0


class Names(dict):  # type: ignore[type-arg]
    def __getitem__(self, name: str) -> Any:
        return 3.0


derived = Derived(2)
changeable = np.zeros(1, [("number", "f8")])[0]
module = Module("module")
vars(module)["factor"] = 2.0
bounds = slice(np.array(0), np.array(3))


class OwnError(ValueError):
    def __init__(self) -> None:
        super().__init__("made")


class PlainError(ValueError):
    pass


ERROR = ValueError("one for all")


def raising(error: Any) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        if x.ndim == 7:
            raise error
        return x

    return call


def executed(text: str, names: Any) -> Any:
    exec(text, names)
    return names["f"]


OBJECTS = {
    "derived": lambda x: x * derived,
    "derived class": lambda x: x * Derived(2),
    "its type": lambda x: x.astype(Derived),
    "record": lambda x: np.full_like(x, changeable),
    "module": lambda x: x * module.factor,
    "slice": lambda x: x[bounds],
    "error": raising(OwnError),
    "error object": raising(ERROR),
    "builtins": executed("f = lambda x: abs(x)", {"__builtins__": {"abs": print}}),
    "globals": executed("def f(x): return x * factor", Names(factor=2.0)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_only_looks_known_is_not(name: str) -> None:
    assert why_unsafe(OBJECTS[name]) is not None


def test_exceptions_that_are_made_by_python_itself_may_be_raised() -> None:
    assert why_unsafe(raising(PlainError)) is None
    assert why_unsafe(raising(KeyError)) is None


def test_known_values_have_the_hash_of_what_they_are_equal_to() -> None:
    values = [0, 1, True, 0.0, -0.0, 1.0, math.nan, "1", (1, 2), slice(1), np.float32(1), len, []]
    for left in values:
        for right in [*values, copy.copy(left)]:
            if Known(left) == Known(right):
                assert hash(Known(left)) == hash(Known(right))
    # A graph gives each chunk's call another number: examined in linear time.
    assert len({hash(Known(k)) for k in range(1000)}) > 900


def test_an_instruction_of_python_3_13_that_stores_and_loads() -> None:
    code: Any = Code(Examination(Outside()), stencil, stencil.__code__, None)
    code.stack, code.variables = [Kind.NEW], {"second": Kind.TEXT}
    (first, *_) = instructions(stencil.__code__)
    both = first._replace(opname="STORE_FAST_LOAD_FAST", argval=("first", "second"))
    for each in parts_of(both):
        INSTRUCTIONS[each.opname](code, each)
    assert code.stack == [Kind.TEXT]
    assert code.variables == {"first": Kind.NEW, "second": Kind.TEXT}


def test_defaults_that_take_the_place_of_others_in_memory_are_noticed() -> None:
    def scaled(x: Any, *, by: float = 1.0) -> Any:
        return x * by

    scaled.__kwdefaults__ = {"by": float("1.5")}
    outside = Outside()
    outside.function(scaled)
    assert outside.holds()
    for text in ("2.5", "3.5"):  # The second is where the first one was.
        scaled.__kwdefaults__ = {"by": float(text)}
    assert not outside.holds()
    scaled.__kwdefaults__ = {"by": float("1.5")}
    assert outside.holds()
