"""Functions that a function defines inside: what is shown safe gives NumPy's results."""

from __future__ import annotations

import types
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from tests.graph.examining import assert_as_numpy, assert_numpys, assert_safe, why_unsafe


def comprehends(x: Any) -> Any:
    return sum([x * k for k in (1, 2)])


def generates(x: Any) -> Any:
    return np.stack(tuple(x[..., k] for k in range(2)), axis=-1).max(axis=-1)


def calls_inside(x: Any, n: int = 2) -> Any:
    def inner(y: Any, m: int) -> Any:
        def innermost(z: Any) -> Any:
            return z * n + x

        return innermost(y) * m

    return inner(x, m=3) + (lambda y: y + n)(x)


def gives_functions(x: Any, n: int = 2) -> Any:
    def applied(function: Any, y: Any) -> Any:
        return function(y)

    n = n + 1
    return applied(lambda y: y * n, x)


def indices(*args: Any) -> Any:
    """As dask-image has it."""
    parts = tuple(
        a[i * (None,) + (slice(None),) + (len(args) - i - 1) * (None,)] for i, a in enumerate(args)
    )
    return sum(parts)


def reduces(x: Any) -> Any:
    size = reduce(lambda m, n: m * n, x.shape)
    return reduce(np.logical_or, [x == k for k in (1, 2)]) * size


def changes_what_was_reduced(x: Any) -> Any:
    y = x * 2
    z = reduce(np.add, [y])
    z += 1
    return y


def keeps_its_variable(x: Any) -> Any:
    k = x * 2
    parts = [k * n for n in (1, 2) for k in (x, x + n)]
    k += 1
    return sum(parts) + k


def views_of_what_is_new(x: Any) -> Any:
    return sum([y.T for y in (x + 1, x + 2)])


def puts_lists_into_lists(x: Any) -> Any:
    parts: list[Any] = []
    for _ in range(3):
        parts = [parts]
    return x * len(x)


SAFE = [
    comprehends,
    keeps_its_variable,
    puts_lists_into_lists,
    generates,
    calls_inside,
    gives_functions,
    reduces,
]


@pytest.mark.parametrize("function", SAFE)
def test_safe(function: Any) -> None:
    assert_safe(function)


def test_any_number_of_arguments() -> None:
    assert_safe(indices, np.arange(3), np.arange(4))


def list_of_functions(x: Any) -> Any:
    functions = [lambda: x * k for k in (1, 2)]  # noqa: B023
    return functions[0]()


def assigns_outside(x: Any) -> Any:
    def inner() -> Any:
        nonlocal x
        x = x + 1
        return x

    return inner() + inner()


def changes_what_is_shown(x: Any) -> Any:
    y = x * 2
    t = y

    def inner() -> Any:
        return y.T

    shown = inner()
    t += 1
    return shown


def changes_outer_variable(x: Any) -> Any:
    y = x * 2

    def inner(z: Any) -> Any:
        z += 1
        return z

    return inner(y) + y


def calls_itself(x: Any) -> Any:
    def inner(n: int) -> Any:
        return x if n == 0 else inner(n - 1)

    return inner(2)


def takes_items_one_by_one(x: Any) -> Any:
    for item in (x * k for k in (1, 2)):
        x = item
    return x


def gives_a_coroutine(x: Any) -> Any:
    async def inner() -> Any:
        return x

    return inner()


def gives_a_function(x: Any) -> Any:
    return lambda: x


def has_no_value_yet(x: Any) -> Any:
    def inner() -> Any:
        return later

    if x.ndim > 2:
        later = x
    return inner()


def has_defaults(x: Any) -> Any:
    return (lambda y=x: y)()


def decides_inside(x: Any) -> Any:
    return sum([x for _ in range(x.sum())])


def changes_by_reducing(x: Any) -> Any:
    def added(y: Any, z: Any) -> Any:
        y += z
        return y

    return reduce(added, [x, x * 2])


def keeps_functions_of_a_comprehension(x: Any) -> Any:
    k = x * 2
    functions = [lambda: k for k in (1, 2)]  # noqa: B023
    k += 1
    return functions[0]() * k


UNSAFE = [changes_by_reducing, changes_outer_variable, changes_what_was_reduced, gives_a_coroutine]


@pytest.mark.parametrize("function", UNSAFE)
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function) is not None


STOPS = {
    changes_what_is_shown: "changes a chunk in place",
    gives_a_function: "returns a function",
    decides_inside: "asks for a chunk's values (index)",
}


@pytest.mark.parametrize("function", STOPS)
def test_what_lazy_chunks_do_not_know_ends_the_recording(function: Any) -> None:
    assert_numpys(function, STOPS[function])


NUMPYS = [assigns_outside, calls_itself, has_defaults, keeps_functions_of_a_comprehension,
          list_of_functions, takes_items_one_by_one]  # fmt: skip


@pytest.mark.parametrize("function", NUMPYS)
def test_what_is_recorded_is_numpys(function: Any) -> None:
    assert_numpys(function)


def test_an_error_of_the_functions_own_is_raised() -> None:
    with pytest.raises(NameError):
        assert_numpys(has_no_value_yet)


def test_pythons_own_functions_inside_are_noted() -> None:
    names: dict[str, Any] = {}
    exec("def f(x): return (lambda y: abs(y))(x)", names)
    found = examined(names["f"], [Kind.OTHER], {})
    assert found.reason is None
    names["__builtins__"] = dict(vars(types)) | {"abs": print}
    assert not found.outside.holds()


STATEMENTS = [
    "y = x * 2", "z = y", "z = y.T.T", "y += 1", "z -= 3", "x = y", "y = f(z)", "z = f(y) + 1",
    "y = sum([f(y), g(z)])", "f, g = g, f", "z = sum([y * k + z for k in (1, 2)])",
    "z = sum(f(y) for y in (z, x))", "y = h(f, z)", "y = h(lambda u: u - z, x)",
    "z = np.stack([f(v) for v in (y, z)]).max(axis=0)", "y = [z, x][0]", "x += 1",
    "z = tuple(v for v in (y, z))[-1]", "y = reduce(lambda u, v: u + f(v), [z, x])",
    "z = reduce(h, [z])", "y = reduce(np.add, [z])", "y[x < 3] = 1", "z[y > f(z)] = -2",
    "l = [v.T.T for v in (y, z)]", "z = sum(l)", "z = l[0]", "k = x * 2", "z = k",
    "y = sum([y + k for y in l for k in (1, 2)])",
    "l = [y for y in (z, x) if y.ndim > 1]", "l = [y for _ in range(2)]",
    "y = sum([(lambda: y * k)() for k in (1, 2)])", "l = [(lambda: k)() for k in l]",
    "z = sum([sum([u * k for u in (y, z)]) for k in l])", "y, z = [v + 1 for v in (z, y)]",
]  # fmt: skip
INSIDE = ["u + y", "u", "y", "y.T.T", "z * 2 - u", "[u for _ in (1,)][0]", "sum([u, z])", "x[:]",
          "g(u)", "(lambda v: v + z)(u)", "(y := u)",
          "sum(u * k for k in range(2)) + z"]  # fmt: skip


@st.composite
def functions(draw: st.DrawFn) -> str:
    """Return a function that defines others, which share its variables."""
    inner = [draw(st.sampled_from(INSIDE)) for _ in "fgh"]
    body = draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6))
    lines = ["y = x + 1", "z = x * 3", f"f = lambda u: {inner[0]}", f"g = lambda u: {inner[1]}",
             "h = lambda w, u: w(u)", "l = [y, x]", *body, "return y - z"]  # fmt: skip
    return "def made(x):\n" + "".join(f"    {line}\n" for line in lines)


@given(functions())
def test_what_is_shown_safe_is_numpys(text: str) -> None:
    names: dict[str, Any] = {"np": np, "reduce": reduce}
    exec(text, names)
    assert_as_numpy(names["made"])
