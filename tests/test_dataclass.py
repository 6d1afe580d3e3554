"""Dataclasses that are made quickly behave as Python's."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from gpusched.dataclass import MANY, dataclass


@dataclass(frozen=True)
class Quick:
    """Fields of all kinds."""

    a: int
    hidden: int = field(default=0, repr=False)
    ignored: int = field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class Plain:
    """The same by Python."""

    a: int
    hidden: int = field(default=0, repr=False)
    ignored: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Single:
    a: Any


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Derived(Quick):
    b: int = 2


@dataclass(frozen=True)
class Own:
    a: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, eq=False)
class Itself:
    a: int


@dataclass
class Mutable:
    a: Any


@pytest.mark.parametrize("cls", [Quick, Plain])
def test_fields_say_what_is_shown_and_compared(cls: Any) -> None:
    x = cls(1, 2, ignored=3)
    assert repr(x) == f"{cls.__name__}(a=1, ignored=3)"
    assert x == cls(1, 2) and hash(x) == hash(cls(1, 2)) and x != cls(1, 3)
    assert x != (1, 2) and Quick(1) != Plain(1)
    with pytest.raises(FrozenInstanceError):
        x.a = 2
    with pytest.raises(FrozenInstanceError):
        del x.a
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        cls(1, other=2)


@pytest.mark.parametrize("asked", [False, True])
def test_init_is_as_python_compiles_it_before_it_is_compiled_and_after(asked: bool) -> None:
    def made(decorator: Any) -> Any:
        class First:
            a: int
            b: list[int] = field(default_factory=list)
            c: str = field(default="c", kw_only=True)
            after: int = field(init=False)

            def __post_init__(self) -> None:
                object.__setattr__(self, "after", self.a + 1)

        class Second(decorator(frozen=True)(First)):  # type: ignore[misc]
            d: float = 0.5

        return decorator(frozen=True)(Second)

    found, expected = made(dataclass), made(dataclasses.dataclass)
    if asked:
        assert str(inspect.signature(found)) == str(inspect.signature(expected))
        assert found.__init__.__qualname__ == f"{found.__qualname__}.__init__"
    for make in (found, expected):
        assert str(make(1, d=3.0, c="e")).endswith("Second(a=1, b=[], c='e', after=2, d=3.0)")
        assert make(1) == make(1, [], 0.5, c="c") and make(1).b is not make(1).b
        with pytest.raises(TypeError, match="positional"):
            make()
        with pytest.raises(TypeError, match="positional"):
            make(1, [], 0.5, "c")
        with pytest.raises(TypeError, match="multiple values for argument 'a'"):
            make(1, a=1)
        with pytest.raises(TypeError, match="unexpected keyword argument 'e'"):
            make(1, e=1)
        with pytest.raises(FrozenInstanceError):
            make(1).d = 2.0
    assert inspect.isfunction(found.__dict__["__init__"]) is asked
    assert [found(1, d=n).d for n in range(MANY)] == [*range(MANY)]
    assert inspect.isfunction(found.__dict__["__init__"])


def test_python_finds_its_fields() -> None:
    assert pickle.loads(pickle.dumps(replace(Quick(1), a=2))) == Quick(2)
    assert [each.name for each in dataclasses.fields(Derived)] == ["a", "hidden", "ignored", "b"]
    match Quick(5):
        case Quick(a):
            assert a == 5


def test_one_field_and_none_are_compared_as_tuples_are() -> None:
    nan = float("nan")
    assert Single(nan) == Single(nan) and Single(1) != Single(2)
    assert Empty() == Empty() and hash(Empty()) == hash(Empty())
    assert repr(Empty()) == "Empty()"


def test_derived_classes_compare_all_fields() -> None:
    assert Derived(1) == Derived(1) != Derived(1, b=3)
    assert Derived(1) != Quick(1)
    assert repr(Derived(1)) == "Derived(a=1, ignored=0, b=2)"


def test_what_derives_from_frozen_classes_is_frozen() -> None:
    for name in ("a", "b"):
        with pytest.raises(FrozenInstanceError):
            setattr(Derived(1), name, 3)


def test_own_methods_stay() -> None:
    assert Own(1) == Own(2) and hash(Own(1)) == 7 and repr(Own(1)) == "own"


def test_objects_may_be_equal_to_themselves_only() -> None:
    assert Itself(1) != Itself(1) and len({Itself(1), Itself(1)}) == 2
    assert repr(Itself(1)) == "Itself(a=1)"


def test_what_changes_cannot_be_hashed() -> None:
    x = Mutable([])
    x.a.append(x)
    assert repr(x) == "Mutable(a=[...])"
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
