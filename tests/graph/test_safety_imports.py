"""Imports within functions: those that only read what is loaded, and all others."""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety.check import Code, Examination
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind, Known
from gpusched.graph.safety.listed import Unsafe
from gpusched.graph.safety.outside import Outside
from tests.graph.examining import why_unsafe


class Finder:
    """Notes for which modules Python looks; it finds none."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        self.asked.append(name)

    def given(self, name: str) -> float:
        """Be a module's ``__getattr__``."""
        if name not in NAMES or name.startswith("_"):
            raise AttributeError(name)
        self.asked.append(name)
        return 3.0


class Other(types.ModuleType):
    """A module of a type of its own."""


@pytest.fixture(scope="module", autouse=True)
def finder() -> Iterator[Finder]:
    """Load modules of many kinds, and return what notes searches for others."""
    found, before = Finder(), sys.modules.copy()
    names = {"helped_p": types.ModuleType, "helped_p.q": types.ModuleType,
             "helped_p.other": Other, "helped_p.q.deep": types.ModuleType,
             "helped_lone": types.ModuleType, "helped_early": types.ModuleType,
             "helped_odd": types.ModuleType}  # fmt: skip
    for name, kind in names.items():
        module = sys.modules[name] = kind(name)
        vars(module).update(scale=2.0, __spec__=importlib.machinery.ModuleSpec(name, None))
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    for name in ("helped_p", "helped_p.q"):
        sys.modules[name].__path__ = []  # type: ignore[attr-defined]
    vars(sys.modules["helped_p"])["__getattr__"] = found.given
    del sys.modules["helped_p"].scale  # Its function gives another one each time, as it may.
    sys.modules["helped_early"].__spec__._initializing = True  # type: ignore[union-attr]
    sys.modules["helped_odd"].__spec__ = types.SimpleNamespace(_initializing=False)  # type: ignore[assignment]
    sys.meta_path.insert(0, found)  # type: ignore[arg-type]
    yield found
    sys.meta_path.remove(found)  # type: ignore[arg-type]
    for name in names:
        del sys.modules[name]
    assert sys.modules.keys() >= before.keys()


MODULES = ["helped_p", "helped_p.q", "helped_p.other", "helped_p.q.deep", "helped_lone",
           "helped_early", "helped_odd", "helped_none", "helped_p.none",
           "helped_lone.none"]  # fmt: skip
NAMES = ["q", "other", "deep", "scale", "none", "__spec__", "helped_lone"]


@st.composite
def imports(draw: st.DrawFn) -> str:
    """Return an import that gives something the name ``found``."""
    module, name = draw(st.sampled_from(MODULES)), draw(st.sampled_from(NAMES))
    if draw(st.booleans()):
        return f"from {module} import {name} as found"
    if draw(st.booleans()):
        place = "." * draw(st.integers(1, 3)) + draw(st.sampled_from(["", "q", "other", "none"]))
        return f"from {place} import {name} as found"
    if draw(st.booleans()):
        return f"import {module} as found"
    return f"import {module}; found = {module.partition('.')[0]}"


@given(imports())
def test_what_is_followed_is_what_python_does(finder: Finder, text: str) -> None:
    spec = importlib.machinery.ModuleSpec("helped_p.q.x", None)
    names: dict[str, Any] = {"__package__": "helped_p.q", "__spec__": spec}
    exec(f"def f():\n    {text}\n    return found", names)
    outside = Outside()
    code = Code(Examination(outside), names["f"], names["f"].__code__, None)
    kinds: list[Any] = []
    code.use = lambda *given: kinds.extend(given)  # type: ignore[method-assign]
    try:
        code.run({})
    except Unsafe:
        return
    loaded, asked = sys.modules.copy(), list(finder.asked)
    (kind,) = kinds
    assert isinstance(kind, Known)
    assert kind.value is names["f"]()
    assert sys.modules == loaded
    assert finder.asked == asked
    assert outside.holds()


def whole(x: Any) -> Any:
    import numpy as np

    return np.exp(x) * 2


def names(x: Any) -> Any:
    from math import pi, sqrt

    return x * (pi + sqrt(2.0))


def dotted(x: Any) -> Any:
    import os.path  # noqa: F401

    import numpy.linalg

    return numpy.sqrt(x)


def by_place(x: Any) -> Any:
    from . import examining as module  # noqa: F401

    return np.sqrt(x)


def test_what_is_imported_by_its_place_is_not_followed() -> None:
    assert "by its place in a package" in str(why_unsafe(by_place))


@pytest.mark.parametrize("function", [whole, names, dotted])
def test_safe(function: Any) -> None:
    assert why_unsafe(function) is None


def test_a_function_for_imports_that_is_not_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(whole, [Kind.OTHER], {}).outside
    assert found.holds()
    plain = builtins.__import__
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", lambda *args, **kwargs: plain(*args, **kwargs))
        assert not found.holds()
        assert "not Python's own" in str(why_unsafe(whole))
    own = types.FunctionType(whole.__code__, {"__builtins__": {"__import__": print}})
    assert "not Python's own" in str(why_unsafe(own))


def test_another_module_of_the_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(names, [Kind.OTHER], {}).outside
    other = types.ModuleType("math")
    other.pi, other.sqrt = 3.0, np.sqrt  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "math", other)
        assert not found.holds()
        assert why_unsafe(names) is None
    assert found.holds()
    monkeypatch.delitem(sys.modules, "math")
    assert not found.holds()
    assert "not loaded yet" in str(why_unsafe(names))
