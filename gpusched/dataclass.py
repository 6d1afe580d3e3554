"""`dataclass` as Python has it, for modules that a process's first fused computation imports.

Python writes and compiles a function for each method of each class: 0.8 ms for a frozen class of
five fields (Python 3.11, AMD EPYC), which was half of what the first computation took with its
kernels on disk. Here ``__init__`` is compiled when the first object is made, and the other methods
are shared: 0.04 ms, and 0.1 ms for the first object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, *, eq: bool = True, frozen: bool = False, **options: Any
    ) -> Any:
        """Return a class with the methods of a dataclass.

        Parameters
        ----------
        cls
            The class; None for a decorator.
        eq
            Whether objects with equal fields are equal.
        frozen
            Whether fields stay as they are; of a class as of those that it derives from, which
            mypy sees to.
        **options
            Passed on to `dataclasses.dataclass`: none of ``init``, ``repr`` and ``order``. What
            is no parameter has no function that makes it.
        """
        if cls is None:
            return partial(dataclass, eq=eq, frozen=frozen, **options)
        own = set(cls.__dict__)
        cls.__doc__ = cls.__doc__ or cls.__name__  # Python would ask for the signature.
        made = dataclasses.dataclass(cls, init=False, eq=False, repr=False, **options)
        made.__init__ = _Init(made, frozen)
        methods = {"__repr__": _repr}
        if frozen:
            methods["__setattr__"], methods["__delattr__"] = _frozen(made)
        if eq:
            # A class that defines __eq__ has None as its __hash__.
            own -= {"__hash__"} if cls.__dict__.get("__hash__", _repr) is None else set()
            methods["__eq__"] = _equality(made)
            methods["__hash__"] = _hash(made) if frozen else None
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        return made


class _Init:
    """``__init__`` of a class until somebody asks for it.

    Notes
    -----
    Thread-safe: two threads make the same.
    """

    def __init__(self, cls: Any, frozen: bool) -> None:
        self._cls = cls
        self._frozen = frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        init = _compiled(self._cls, self._frozen)
        self._cls.__init__ = init
        return init.__get__(instance, owner)


class _Factory:
    """Default of a parameter whose field has a function that makes its value."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compiled(cls: Any, frozen: bool) -> Any:
    """Return the ``__init__`` of a class, as `dataclasses.dataclass` writes it."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    body = []
    for field in (each for each in fields if each.init):
        name = value = field.name
        makes = field.default_factory is not dataclasses.MISSING
        if makes:
            scope[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _factory else {name}"
        default = "=_factory" if makes else ""
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        parameters[bool(field.kw_only)].append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    lines = "".join(f"\n    {line}" for line in body or ["pass"])
    exec(f"def __init__({', '.join(parameters[False] + named)}):{lines}", scope)
    init = scope["__init__"]
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {
        "return": None
    }
    return init


def _frozen(cls: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the methods that keep an object's fields as they are."""
    names = {field.name for field in dataclasses.fields(cls)}

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return set_attribute, delete_attribute


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _equality(cls: Any) -> Callable[[Any, Any], Any]:
    values = _getter([field.name for field in dataclasses.fields(cls) if field.compare])

    def is_equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return is_equal


def _hash(cls: Any) -> Callable[[Any], int]:
    hashed = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    values = _getter(hashed)

    def hash_of(self: Any) -> int:
        return hash(values(self))

    return hash_of


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the values of some attributes, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda found: tuple(getattr(found, name) for name in names)
