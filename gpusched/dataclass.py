"""`dataclass` as Python has it, for modules that a process's first fused computation imports.

Python writes and compiles a function for each method of each class: 0.8 ms for a frozen class of
five fields (Python 3.11, AMD EPYC), which was half of what the first computation took with its
kernels on disk. Here ``__init__`` is compiled where there are many objects, and the other methods
are shared: 0.02 ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, make_dataclass
from functools import partial
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: Any = None, *, eq: bool = True, frozen: bool = False, kw_only: bool = False
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
        kw_only
            Whether fields are given by name, unless `field` says so of them.
        """
        if cls is None:
            return partial(dataclass, eq=eq, frozen=frozen, kw_only=kw_only)
        own = set(cls.__dict__)
        cls.__doc__ = cls.__doc__ or cls.__name__  # Python would ask for the signature.
        cls.__dataclass_fields__ = fields = _fields(cls, kw_only)
        cls.__match_args__ = tuple(n for n, f in fields.items() if f.init and not f.kw_only)
        cls.__init__ = _Init(cls, frozen)
        methods: dict[str, Any] = {"__repr__": _repr}
        if frozen:
            methods["__setattr__"], methods["__delattr__"] = _frozen(cls)
        if eq:
            # A class that defines __eq__ has None as its __hash__.
            own -= {"__hash__"} if cls.__dict__.get("__hash__", _repr) is None else set()
            methods["__eq__"] = _equality(cls)
            methods["__hash__"] = _hash(cls) if frozen else None
        for name in methods.keys() - own:
            setattr(cls, name, methods[name])
        return cls


_FIELDS = "__dataclass_fields__"
"""Where Python's own functions look for a class's fields."""
_KIND = vars(dataclasses)["_FIELD"]
"""What Python's own functions take for a field."""
MANY = 100
"""Objects for which ``__init__`` is compiled: that takes as long as it saves with so many."""


def _fields(cls: Any, kw_only: bool) -> dict[str, Any]:
    """Return the fields of a class, those that it inherits first, and set their defaults."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= vars(base).get(_FIELDS, {})
    for name, kind in get_annotations(cls).items():
        if kind.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, MISSING)
        made: Any = given if isinstance(given, Field) else field(default=given)
        made.name, made.type, made._field_type = name, kind, _KIND
        made.kw_only = kw_only if made.kw_only is MISSING else made.kw_only
        found[name] = made
        if made.default is not MISSING:
            setattr(cls, name, made.default)
        elif made is given:
            delattr(cls, name)
    return found


class _Init:
    """``__init__`` of a class, until it has many objects or somebody asks for it.

    Notes
    -----
    Thread-safe: two threads compile the same.
    """

    def __init__(self, cls: Any, frozen: bool) -> None:
        self._cls = cls
        self._frozen = frozen
        self._set = object.__setattr__ if frozen else setattr
        self._objects = 0

    def __get__(self, instance: Any, owner: Any) -> Any:
        self._objects += 1
        if instance is not None and self._objects < MANY:
            return partial(self._begin, instance)
        init = _compiled(self._cls, self._frozen)
        self._cls.__init__ = init
        return init.__get__(instance, owner)

    def _begin(self, instance: Any, /, *args: Any, **kwargs: Any) -> None:
        """Set the fields; what is refused is refused by the compiled function."""
        values = dict(zip(self._cls.__match_args__, args, strict=False))
        fits = len(values) == len(args) and values.keys().isdisjoint(kwargs)
        values |= kwargs
        fields = [each for each in getattr(self._cls, _FIELDS).values() if each.init]
        for each in fields:
            if each.name not in values and each.default_factory is not MISSING:
                values[each.name] = each.default_factory()
            value = values.setdefault(each.name, each.default)
            fits = fits and value is not MISSING
        if not fits or len(values) > len(fields):
            _compiled(self._cls, self._frozen)(instance, *args, **kwargs)
        else:
            for each in fields:
                self._set(instance, each.name, values[each.name])
            if hasattr(instance, "__post_init__"):
                instance.__post_init__()


def _compiled(cls: Any, frozen: bool) -> Any:
    """Return the ``__init__`` of a class as Python writes it."""
    fields = [(name, each.type, each) for name, each in getattr(cls, _FIELDS).items()]
    methods = {n: m for n in ("__post_init__",) if (m := getattr(cls, n, None))}
    made: Any = make_dataclass(cls.__name__, fields, namespace=methods, repr=False, eq=False,
                               frozen=frozen)  # fmt: skip
    init = made.__init__
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return init


def _frozen(cls: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the methods that keep an object's fields as they are."""
    names = getattr(cls, _FIELDS)

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return set_attribute, delete_attribute


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (each.name for each in getattr(self, _FIELDS).values() if each.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _equality(cls: Any) -> Callable[[Any, Any], Any]:
    values = _getter([each.name for each in getattr(cls, _FIELDS).values() if each.compare])

    def is_equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return is_equal


def _hash(cls: Any) -> Callable[[Any], int]:
    fields = getattr(cls, _FIELDS).values()
    values = _getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def hash_of(self: Any) -> int:
        return hash(values(self))

    return hash_of


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the values of some attributes, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda found: tuple(getattr(found, name) for name in names)
