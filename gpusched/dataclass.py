"""`dataclass` as Python has it, for modules that a process's first fused computation imports.

Python writes and compiles a function for each method of each class: 0.8 ms for a frozen class of
five fields (Python 3.11, AMD EPYC), which was half of what the first computation took with its
kernels on disk. Here only ``__init__`` and the two methods that keep an object frozen are compiled;
``__repr__``, ``__eq__`` and ``__hash__`` are shared: 0.25 ms.
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

    def dataclass(cls: type | None = None, *, eq: bool = True, **options: Any) -> Any:
        """Return a class with the methods of a dataclass.

        Parameters
        ----------
        cls
            The class; None for a decorator.
        eq
            Whether objects with equal fields are equal.
        **options
            Passed on to `dataclasses.dataclass`: neither ``repr`` nor ``order``.
        """
        if cls is None:
            return partial(dataclass, eq=eq, **options)
        own = set(cls.__dict__)
        made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
        methods = {"__repr__": _repr}
        if eq:
            # A class that defines __eq__ has None as its __hash__.
            own -= {"__hash__"} if cls.__dict__.get("__hash__", _repr) is None else set()
            methods["__eq__"] = _equality(made)
            methods["__hash__"] = _hash(made) if options.get("frozen") else None
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        return made


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
