"""Functions that ask for types and make partial applications: what is shown safe is NumPy's."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety import outside
from gpusched.graph.safety.examination import examined, kind_of
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from gpusched.record.chunk import recorder_of
from tests.graph.examining import assert_numpys, why_unsafe
from tests.record.recording import assert_same, record


@pytest.fixture(autouse=True, scope="module")
def numpys_chunks() -> Iterator[None]:
    """Take lazy chunks for NumPy's whatever `record` compiles with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outside, "_numpys", lambda chunk: chunk)
        yield


def sums_of_lists(a: Any, axis: Any = (0,), dtype: Any = "f4", keepdims: bool = False) -> Any:
    """As dask-array has it for what it sums after a product of matrices."""
    if type(a) is list:  # noqa: SIM108
        out = reduce(partial(np.add, dtype=dtype), a)
    else:
        out = a
    return out if keepdims else out.sum(axis=axis[0])


def asks_for_types(x: Any) -> Any:
    if type(x) in (list, tuple):
        return x[0]
    y = x + 1 if type(x) is np.ndarray else x - 1
    z = x.max()
    y = y * 2 if type(z) is np.float64 or type(z) == np.ndarray else y * 3  # noqa: E721
    return y if type(y) is type(x) else y * 5


def knows_its_own(x: Any) -> Any:
    several = [x, x + 1]
    return several[1] * (type(several) is list) + (type((x,)) is tuple)


def scaled(y: Any, by: Any, offset: Any = 1) -> Any:
    return y * by + offset


def partials(x: Any) -> Any:
    twice = partial(scaled, by=2)
    return partial(twice, offset=x)(x) + partial(twice, x)(by=3) + partial(np.multiply, x)(x)


def partial_of_a_method(x: Any) -> Any:
    return x - partial((x * 2).max, axis=0)(keepdims=True)


SAFE = [sums_of_lists, asks_for_types, knows_its_own, partials, partial_of_a_method]


def bound(function: Callable[..., Any], read: outside.Outside) -> Callable[..., Any]:
    """Return a function of lazy chunks that is recorded as a segment does it."""

    def call(*chunks: Any) -> Any:
        return read.bound(recorder_of(chunks[0])).value(function)(*chunks)

    return call


def check(function: Callable[..., Any], *chunks: Any) -> None:
    """Assert that a function gives NumPy's results when it is recorded, and from its plan."""
    found = examined(function, map(kind_of, chunks), {})
    assert found.reason is None
    recording = record(bound(function, found.outside), *chunks, backend="python")
    assert_same(recording.result, function(*chunks))
    again = [chunk + 1 for chunk in chunks]
    assert_same(recording.run(*again), function(*again))


@pytest.mark.parametrize("function", SAFE)
def test_safe(function: Any) -> None:
    check(function, np.arange(12.0).reshape(3, 4))


def test_lists_of_chunks() -> None:
    assert examined(sums_of_lists, [kind_of([np.ones(3), np.ones(3)])], {}).reason is None

    def both(x: Any, y: Any) -> Any:
        return sums_of_lists([x, y, x], keepdims=True)

    check(both, np.arange(3.0), np.ones(3))


class Asked(ABC):  # noqa: B024
    pass


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 0


class Odd(metaclass=Meta):
    pass


def changes_what_it_holds(x: Any) -> Any:
    y = x * 2
    held = partial(np.add, y)
    y += 1
    return held(x)


def changes_by_a_partial(x: Any) -> Any:
    def change(y: Any) -> Any:
        y += 1
        return y

    y = x * 2
    return partial(change, y)() + y


UNSAFE = [
    lambda x: x * 2 if type(x) is Asked else x,
    lambda x: x * 2 if type(x) == Odd else x,  # noqa: E721
    lambda x: x * 2 if type(x) in (Odd, int) else x,
    lambda x: x * 2 if isinstance(x, type) else x,
    lambda x: x * 2 if type(x).__name__ == "ndarray" else x,
    lambda x: x * 2 if type(x) else x,
    lambda x: x * 2 if type(np.exp) is np.ufunc else x,
    lambda x: type("Own", (), {})() or x,
    lambda x: x * 2 if type(np.int64) is type else x,
    lambda x: x * 2 if type(np.int64) in (int, type) else x,
    lambda x: type(x)(x),
    lambda x: type(x),
    lambda x: (x, type(x)),
    lambda x: partial(np.add, x),
    lambda x: partial(print, x)(),
    lambda x: partial(np.add, out=x)(x, x),
    lambda x: partial(np.exp, dtype=x)(x),
    lambda x: np.add(x, x, dtype=x),
    lambda x: np.add(x, x, dtype="f4", casting="unsafe"),
    lambda x: partial(partial(np.add, x), where=x > 0)(x),
]


@pytest.mark.parametrize("function", UNSAFE)
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function) is not None


@pytest.mark.parametrize("function", [changes_what_it_holds, changes_by_a_partial])
def test_what_partial_applications_hold_may_change(function: Any) -> None:
    assert_numpys(function)


STATEMENTS = [
    "y = x + 1", "y += 1", "z -= 2", "z = y", "z = y.T.T", "z = y.max(axis=0)", "z = y.max()",
    "f = partial(g, y)", "f = partial(f, 2)", "g = partial(np.add, dtype='f4')", "f = g",
    "f = partial(lambda u, v: u + v, z)", "f = partial(scaled, by=z)",
    "f = partial(y.max, axis=0)", "z = f()", "y = f(z)",
    "z = f(y, z)", "y = f(v=z)", "g = np.multiply", "z = reduce(g, [y, z])",
    "z = reduce(partial(np.add, dtype='f8'), (y, x))", "z = np.add(y, z, dtype='f4')",
    "z = np.less(y, z, dtype=bool)", "z = z + 1 if type(z) is np.ndarray else z - 1",
    "y = y * 2 if type(z) is type(y) else y", "z = z if type(z) == np.float64 else z * 2",
    "z = -z if type(z) in (np.float32, np.bool_) else z", "f = partial(partial, g)",
    "y = y * (type([y]) is list)", "l = [y, z]", "l = (y, z)", "l = y",
    "y = l[0] if type(l) is list else l", "y = l[1] if type(l) is tuple else y",
    "x += 1", "g = lambda u, v: u * v + y", "f = partial(h, g)", "z = h(partial(g, y), z)",
]  # fmt: skip


@st.composite
def functions(draw: st.DrawFn) -> str:
    """Return a function that keeps what it calls in partial applications, and asks for types."""
    body = draw(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=8))
    loop = draw(st.integers(0, len(body)))
    lines = ["y = x + 1", "z = x * 3", "l = [y, x]", "g = np.subtract", "f = partial(g, z)",
             "h = lambda w, u: w(u)", *body[:loop], "for _ in range(2):",
             *(f"    {line}" for line in body[loop:] or ["pass"]), "return y - z"]  # fmt: skip
    return "def made(x):\n" + "".join(f"    {line}\n" for line in lines)


@given(functions())
def test_what_is_shown_safe_is_numpys(text: str) -> None:
    names: dict[str, Any] = {"np": np, "reduce": reduce, "partial": partial, "scaled": scaled}
    exec(text, names)
    function = names["made"]
    verdict = examined(function, [Kind.ARRAY], {})
    if verdict.reason is not None:
        return
    x = np.arange(6.0).reshape(2, 3)
    try:
        found = record(bound(function, verdict.outside), x.copy(), backend="python")
    except (UnrecordableError, TypeError, ValueError):  # Then it runs on the arrays themselves.
        return
    given = x.copy()
    assert_same(found.result, function(given))
    np.testing.assert_array_equal(given, x)
    assert_same(found.run(x + 1), function(x + 1))
