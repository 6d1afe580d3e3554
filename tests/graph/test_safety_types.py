"""Functions that ask for types, and convert to them: what is shown safe is NumPy's."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety import standins
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from tests.graph.examining import assert_as_numpy, assert_numpys, assert_safe, why_unsafe


@pytest.fixture(autouse=True, scope="module")
def numpys_chunks() -> Iterator[None]:
    """Take lazy chunks for NumPy's whatever `record` compiles with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standins, "_numpys", lambda chunk: chunk)
        yield


class Asked(ABC):  # noqa: B024
    pass


def asks_for_types(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return x[0]
    y = x + 1 if isinstance(x, np.ndarray) else x - 1
    z = x.max()
    y = y * 2 if isinstance(z, (np.float64, np.ndarray)) else y * 3
    return y if isinstance(z, np.generic) else y * 5


def knows_its_own(x: Any) -> Any:
    several = [x, x + 1]
    return several[1] * isinstance(several, list) + isinstance((x,), tuple)


def sums_of_lists(x: Any, dtype: Any = "f4") -> Any:
    several = [x, x + 1]
    return reduce(lambda y, z: np.add(y, z, dtype=dtype), several).sum(axis=0)


def scaled(y: Any, by: Any = 3, offset: Any = 1) -> Any:
    return y * by + offset


def asks_what_a_value_is(x: Any) -> Any:
    y = x * 2 if type(x) is np.ndarray and isinstance(x, Iterable | Asked) else x
    z = y.sum(axis=0) if hasattr(y, "shape") and not hasattr(y, "chunks") else y
    if np.isscalar(x) or not np.issubdtype(getattr(x, "dtype", float), np.floating):
        return x
    return z * getattr(x, "ndim", 0) if callable(scaled) and type(z) not in (list, tuple) else x


def applies(x: Any) -> Any:
    return np.add(x, x[::-1]) * scaled(x, 3, 0) + sum(map(scaled, [x, 1])) + sorted([3, 1, 2])[0]


def raises_with_types(x: Any) -> Any:
    if x.ndim == 7:
        raise TypeError(f"{type(x)} as {type(x).__name__}")
    return x * 2 + 1


SAFE = [sums_of_lists, asks_for_types, knows_its_own, asks_what_a_value_is, applies,
        raises_with_types]  # fmt: skip


@pytest.mark.parametrize("function", SAFE)
def test_safe(function: Any) -> None:
    assert_safe(function)


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 0


class Odd(metaclass=Meta):
    pass


UNSAFE = [
    lambda x: x * 2 if isinstance(x, Odd) else x,
    lambda x: x * 2 if type(x) is Odd else x,
    lambda x: x * 2 if type(x) in (int, Odd) else x,
    lambda x: x * 2 if isinstance(int, type) else x,
    lambda x: x * 2 if isinstance(x, (Odd, int)) else x,
    lambda x: type("Own", (), {})() or x,
    lambda x: type(x)(x),
    lambda x: type(x),
    lambda x: x + len(f"{type(x)}"),
    lambda x: x + len(type(x).__name__),
    lambda x: x * 2 if type(x).__name__ == "ndarray" else x,
    lambda x: partial(np.add, x),
    lambda x: partial(np.add, x)(x, x),
    lambda x: getattr(x, str(x.ndim), None),
    lambda x: hasattr(scaled, "__wrapped__"),
]


@pytest.mark.parametrize("function", UNSAFE)
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function) is not None


STATEMENTS = [
    "y = x + 1", "y += 1", "z -= 2", "z = y", "z = y.T.T", "z = y.max(axis=0)", "z = y.max()",
    "f = scaled", "f = g", "f = lambda u, v: u + v", "z = f(z, y)", "y = f(y, z)", "z = f(y, 2)",
    "g = np.multiply", "z = reduce(g, [y, z])", "z = reduce(f, (y, x))",
    "z = np.add(y, z, dtype='f4')", "z = np.less(y, z, dtype=bool)",
    "z = z + 1 if isinstance(z, np.ndarray) else z - 1",
    "y = y * 2 if isinstance(z, np.generic) else y",
    "z = z if isinstance(z, np.float64) else z * 2",
    "z = -z if isinstance(z, (np.float32, np.bool_)) else z",
    "y = y * isinstance([y], list)", "l = [y, z]", "l = (y, z)", "l = y",
    "y = l[0] if isinstance(l, list) else l", "y = l[1] if isinstance(l, tuple) else y",
    "x += 1", "g = lambda u, v: u * v + y", "f = partial(scaled, offset=3)", "f = partial(g)",
    "y = y * 2 if type(z) is np.ndarray else y", "z = z + (type(z) in (np.float64, list))",
    "y = y * hasattr(z, 'shape') + hasattr(l, 'index')", "z = z * getattr(y, 'ndim', 5)",
    "z = z + np.isscalar(z)", "y = sum(map(g, [y, z], [z, y]))", "y = y * isinstance(z, Asked)",
    "z = next(filter(lambda u: u is not None, [z]))", "z = [*map(np.negative, l)][0]",
]  # fmt: skip


@st.composite
def functions(draw: st.DrawFn) -> str:
    """Return a function that asks for types."""
    body = draw(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=8))
    loop = draw(st.integers(0, len(body)))
    lines = ["y = x + 1", "z = x * 3", "l = [y, x]", "g = np.subtract", "f = g", *body[:loop],
             "for _ in range(2):",
             *(f"    {line}" for line in body[loop:] or ["pass"]), "return y - z"]  # fmt: skip
    return "def made(x):\n" + "".join(f"    {line}\n" for line in lines)


@given(functions())
def test_what_is_shown_safe_is_numpys(text: str) -> None:
    names: dict[str, Any] = {"np": np, "reduce": reduce, "scaled": scaled, "partial": partial,
                             "Asked": Asked}  # fmt: skip
    exec(text, names)
    assert_as_numpy(names["made"])


def test_what_is_registered_with_an_abstract_type_is_looked_at() -> None:
    class Registered(ABC):  # noqa: B024
        pass

    def asks(x: Any) -> Any:
        return x * 2 if isinstance(x, Registered) else x * 3

    found = examined(asks, [Kind.OTHER], {})
    assert found.reason is None
    assert found.outside.holds()
    Registered.register(np.ndarray)
    assert not found.outside.holds()


STOPS = {
    "takes an array for a dtype": lambda x: np.add(x, x, dtype=x),
    "formats a chunk": lambda x: x.sum(axis=[x]),
}


@pytest.mark.parametrize("reason", STOPS)
def test_what_lazy_chunks_do_not_know_ends_the_recording(reason: str) -> None:
    assert_numpys(STOPS[reason], reason)


def test_options_that_no_kernel_has_are_numpys() -> None:
    assert_safe(lambda x: np.add(x, x, dtype="f4", casting="unsafe"))
