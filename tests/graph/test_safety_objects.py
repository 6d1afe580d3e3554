"""Objects that functions read, and methods: what Python alone finds is fused, and may change."""

from __future__ import annotations

import contextlib
import pickle
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest.mock import MagicMock

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph import disable, enable
from gpusched.graph.programs.program import Program
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind, same
from gpusched.graph.safety.outside import Outside
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")

VALUES = np.arange(6.0)


def blocks(function: Callable[[Any], Any]) -> Any:
    (made,) = dask.optimize((da.from_array(VALUES, chunks=3) + 1).map_blocks(function, dtype=float))
    return made


def computed(x: Any) -> Any:
    try:
        x = x() if callable(x) else x
        return x.compute(scheduler="sync").tolist()
    except Exception as error:  # noqa: BLE001  which is compared
        return type(error)


class Scale:
    unit = 10.0

    def __init__(self, factor: Any = 2.0) -> None:
        self.factor = factor
        self.inner: Any = None
        self.function = np.negative

    def __call__(self, x: Any) -> Any:
        return x * self.factor + self.unit

    def scaled(self, x: Any, more: float = 0.5) -> Any:
        return self.function(self.raised(x * self.factor)) + more

    def raised(self, x: Any) -> Any:
        return x + self.offset(3.0)

    @staticmethod
    def offset(n: float) -> float:
        return n * 2


class Derived(Scale):
    unit = 20.0

    def raised(self, x: Any) -> Any:
        return x - self.factor


class Slots:
    __slots__ = ("factor", "unit")

    def __init__(self) -> None:
        self.factor = 3.0
        self.unit = 1.0


@dataclass(frozen=True, slots=True)
class Parameters:
    factor: float = 1.5
    unit: float = -1.0


Named = namedtuple("Named", ["factor", "unit"])


def holds(*inner: Any) -> Scale:
    made = Scale()
    made.inner, made.function = inner[0], np.exp
    return made


def reads(held: Any) -> Callable[[Any], Any]:
    return lambda x: x * held.factor + held.unit


def reads_argument(x: Any, held: Any) -> Any:
    return x * held.factor + held.unit


def reads_inner(held: Any) -> Callable[[Any], Any]:
    return lambda x: x + held.inner.factor


def asks(held: Any) -> Callable[[Any], Any]:
    return lambda x: x if held.inner is None else x + 1


FUSED: dict[str, Callable[[], Any]] = {
    "an object": Scale,
    "a method": lambda: Scale().scaled,
    "a derived class": lambda: Derived().scaled,
    "an object of a derived class": Derived,
    "a method with an argument": lambda: partial(Scale().scaled, more=1.5),
    "attributes": lambda: reads(Scale()),
    "slots": lambda: reads(Slots()),
    "a data class": lambda: reads(Parameters()),
    "a named tuple": lambda: reads(Named(2.0, 5.0)),
    "names": lambda: reads(types.SimpleNamespace(factor=2.0, unit=1.0)),
    "a property that dask has had cached": lambda: reads(Cached()),
    "an object in an object": lambda: reads_inner(holds(Slots())),
    "a method in a closure": lambda: (lambda f: lambda x: f(x) - 1)(Scale().scaled),
    "an object that is called": lambda: (lambda f: lambda x: f(x) - 1)(Scale()),
    "an object that holds itself": lambda: (lambda s: (setattr(s, "inner", s), reads(s.inner))[1])(
        Scale()
    ),
    "an argument": lambda: partial(reads_argument, held=Scale()),
    "whether there is one": lambda: asks(holds(None)),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    x = blocks(FUSED[name]())
    with disable():
        expected = computed(x)
    assert computed(blocks(FUSED[name]())) == expected
    found = blocks(FUSED[name]())
    reset_statistics()
    np.testing.assert_allclose(computed(found), FUSED[name]()(VALUES + 1))
    assert statistics().fused_tasks == 2
    assert not statistics().breaks


class Property(Scale):
    @property
    def factor(self) -> float:  # type: ignore[override]
        return next(self.numbers)

    @factor.setter
    def factor(self, value: float) -> None:
        self.numbers: Iterator[float] = iter((1.0, 2.0, 3.0, 4.0))


class Cached:
    unit = 0.0

    @cached_property
    def factor(self) -> float:
        return float(len(vars(self)) + 1)


class Finds:
    unit = 0.0
    calls = 0

    def __getattr__(self, name: str) -> float:
        Finds.calls += 1
        return float(Finds.calls)


class FindsAll(Scale):
    calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "factor":
            FindsAll.calls += 1
            return float(FindsAll.calls)
        return super().__getattribute__(name)


class Descriptor:
    def __get__(self, owner: Any, kind: Any = None) -> float:
        Finds.calls += 1
        return float(Finds.calls)


class Described:
    factor = Descriptor()
    unit = 1.0


class Meta(type):
    pass


class OfMeta(Scale, metaclass=Meta):
    pass


class Names(dict):  # type: ignore[type-arg]
    def __missing__(self, name: str) -> float:
        return 4.0


class OwnNames:
    unit = 1.0
    factor = 2.0

    def __init__(self) -> None:
        self.__dict__ = Names(unit=3.0)


class ShownNames:
    __slots__ = ("hidden",)
    factor = 2.0
    unit = 1.0

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {"factor": 7.0}


class Counts(Scale):
    calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class OfClass(Scale):
    calls = 0

    def __call__(self, x: Any) -> Any:
        return x * self.next()

    @classmethod
    def next(cls) -> float:
        cls.calls += 1
        return cls.calls


class Operand(Scale):
    def __radd__(self, other: Any) -> Any:
        self.factor += 1
        return other * self.factor

    def __call__(self, x: Any) -> Any:
        return x + self


class Asks(Scale):
    def __call__(self, x: Any) -> Any:
        return x * isinstance(self, Scale) * (2.0 if self else 3.0)

    def __bool__(self) -> bool:
        self.factor = -self.factor
        return self.factor > 0


class Lists(Scale):
    def __call__(self, x: Any) -> Any:
        self.inner.append(1.0)
        return x * sum(self.inner)

    def __init__(self) -> None:
        super().__init__()
        self.inner = []


class Superior(Scale):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) + 1


class AsksMethods(Scale):
    def __call__(self, x: Any) -> Any:
        return x * 2 if self.__call__ is self.__call__ else x * 3


def empty() -> Any:
    held = Slots()
    del held.factor
    return held


REFUSED: dict[str, Callable[[], Any]] = {
    "a property": lambda: reads(Property()),
    "__getattr__": lambda: reads(Finds()),
    "__getattribute__": lambda: reads(FindsAll()),
    "a descriptor": lambda: reads(Described()),
    "a class of a class": OfMeta,
    "names of its own": lambda: reads(OwnNames()),
    "names that it shows": lambda: reads(ShownNames()),
    "an object that counts": Counts,
    "a class that counts": OfClass,
    "an operand": Operand,
    "asks what it is": Asks,
    "a list": Lists,
    "super": Superior,
    "asks whether a method is one": AsksMethods,
    "an empty slot": lambda: reads(empty()),
    "what is missing": lambda: reads(Lists),
    "a mock": lambda: MagicMock(side_effect=np.negative),
    "attributes of functions": lambda: (lambda f: setattr(f, "factor", 2.0) or reads(f))(
        lambda x: x
    ),
    "of partial applications": lambda: (lambda p: lambda x: x * p.args[0])(partial(np.add, 2.0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    found = {}
    for fuses in (False, True):
        Finds.calls = FindsAll.calls = OfClass.calls = 0
        with enable() if fuses else disable():
            found[fuses] = computed(blocks(REFUSED[name]()))
    assert found[True] == found[False]
    called = [name for name, reason in statistics().breaks if reason.kind.name != "NO_ARRAY"]
    assert called


class Other(Scale):
    unit = 30.0

    def __call__(self, x: Any) -> Any:
        return x - self.factor


def _sets(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: setattr(held, name, value)


def _sets_of_class(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: setattr(type(held), name, value)


CHANGES: dict[str, Callable[[Any], None]] = {
    "an attribute": _sets("factor", 4.0),
    "another type": _sets("factor", np.float32(0.1)),
    "an array": _sets("factor", np.arange(3.0)),
    "a list": _sets("factor", [1.0, 2.0, 3.0]),
    "is its own": _sets("unit", 5.0),
    "is the class's": _sets_of_class("unit", 6.0),
    "is hidden": _sets("raised", lambda x: x * 9),
    "a method": _sets_of_class("raised", lambda self, x: x * 8),
    "what is called": _sets_of_class("__call__", lambda self, x: x * 7),
    "its class": _sets("__class__", Other),
    "its dictionary": _sets("__dict__", {"factor": 3.0, "unit": 1.0, "function": np.positive}),
    "is gone": lambda held: vars(held).pop("factor"),
    "a property": _sets_of_class("factor", property(lambda self: 11.0)),
    "its attributes": _sets_of_class("__getattribute__", lambda self, name: 12.0),
    "its bases": _sets_of_class("__bases__", (Other,)),
    "a module's function": _sets("function", np.exp),
    "a user's function": _sets("function", lambda x: x * 3 + 1),
}


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_it_may_change_after_its_graph_was_optimised(name: str, called: bool) -> None:
    found = {}
    for fuses in (False, True):
        held = type("Kind", (Scale,), {})()
        function = held if called else held.scaled
        reset_statistics()
        with enable() if fuses else disable():
            x = blocks(function)
            before = computed(x)
            assert bool(statistics().launches) == fuses
            CHANGES[name](held)
            found[fuses] = before, computed(x), computed(partial(blocks, function))
    assert found[True] == found[False]


def test_another_function_of_its_task_may_change_it() -> None:
    held = Scale()

    def change(x: Any) -> Any:
        held.factor += 1
        return x

    found = []
    for fuses in (False, True):
        held.factor = 1.0
        x = da.from_array(VALUES, chunks=3)
        made = x.map_blocks(change, dtype=float).map_blocks(held, dtype=float) * 2
        with enable() if fuses else disable():
            found.append(computed(made))
    assert found[0] == found[1]


WHERE = ("object", "class", "base", "slot", "property", "descriptor", "getattr", "nowhere")


class Data(Descriptor):
    def __set__(self, owner: Any, value: Any) -> None:
        raise AttributeError


def _class(places: dict[str, str]) -> Any:
    """Return an object with attributes a and b in some places of it and its classes."""
    base: dict[str, Any] = {}
    names: dict[str, Any] = {}
    slots = tuple(n for n, where in places.items() if where == "slot")
    for k, (n, where) in enumerate(places.items()):
        if where in ("class", "base"):
            (names if where == "class" else base)[n] = float(k + 2)
        elif where == "property":
            names[n] = property(lambda self, k=k: float(k + 5))
        elif where == "descriptor":
            base[n] = Data() if k % 2 else Descriptor()
        elif where == "getattr":
            base["__getattr__"] = lambda self, name: float(len(name) + 40)
    Base = type("Base", (), {**base, "__slots__": ()})
    kind = type("Kind", (Base,), {**names, "__slots__": (*slots, "__dict__")})
    held = kind()
    for k, (n, where) in enumerate(places.items()):
        if where in ("object", "slot"):
            setattr(held, n, float(k + 7))
    return held


@st.composite
def programs(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[str, str, float]]]:
    places = {n: draw(st.sampled_from(WHERE)) for n in "ab"}
    changes = draw(
        st.lists(
            st.tuples(
                st.sampled_from(("object", "class", "base", "property", "delete")),
                st.sampled_from("ab"),
                st.sampled_from((0.0, -0.0, 3.0, float("nan"))),
            ),
            max_size=3,
        )
    )
    return places, changes


def _change(held: Any, where: str, name: str, value: float) -> None:
    """Change an attribute somewhere; nothing where Python does not let one."""
    kind = type(held)
    try:
        if where == "object":
            setattr(held, name, value)
        elif where == "delete":
            delattr(held, name)
        else:
            owner = kind.__mro__[1] if where == "base" else kind
            setattr(owner, name, property(lambda self: value) if where == "property" else value)
    except AttributeError:
        pass


@given(programs())
def test_attributes_anywhere(program: tuple[dict[str, str], list[tuple[str, str, float]]]) -> None:
    """What is read is what Python gives, and as long as it holds Python gives the same."""
    places, changes = program
    held, outside = _class(places), Outside()
    read = {}
    for n in places:
        with contextlib.suppress(KeyError):
            read[n] = outside.attribute(held, n)
            assert same(read[n], getattr(held, n))
        assert places[n] not in ("object", "class", "base", "slot") or n in read
    for change in changes:
        _change(held, *change)
        if outside.holds():
            assert all(same(value, getattr(held, n)) for n, value in read.items())


class Keeps(Scale):
    """Is sent without what it counts."""

    def __call__(self, x: Any) -> Any:
        return x * self.count()

    def count(self) -> Any:
        return self.factor

    def __setstate__(self, state: Any) -> None:
        self.calls = 0
        self.count = self.counted  # type: ignore[method-assign]

    def counted(self) -> float:
        self.calls += 1
        return float(self.calls)


def test_each_task_that_is_sent_has_an_object_that_is_refused_there() -> None:
    step = ProgramStep(Keeps(), (Register(0),), {}, recorded=True)
    assert examined(step.function, [Kind.OTHER], {}).reason is None
    sent = pickle.dumps(Program((step,), 1))
    for _ in range(2):
        np.testing.assert_array_equal(pickle.loads(sent)(VALUES), VALUES)
