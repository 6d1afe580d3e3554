"""Attributes of objects that Python itself finds in their dictionaries and those of their classes.

An object of a user's class is read as a module is: what was read of it is part of what a recording
depends on, and is looked up again, in the same way, before each run. Where a class has a say in
what an attribute is, as by a property or `__getattribute__`, nothing is read of it.
"""

from __future__ import annotations

import types
from abc import ABCMeta
from collections import namedtuple
from typing import Any

_MADE = 1 << 9
"""The flag of types that are made while a process runs (``Py_TPFLAGS_HEAPTYPE``)."""
_FINDS = tuple(kind.__getattribute__ for kind in (object, tuple, types.SimpleNamespace))
"""What finds attributes in the way that all classes inherit."""
MISSING = object()
"""Stands for what is not there, or is not Python's alone to find."""
CALLED = "()"
"""What a call of an object reads of it: no attribute has that name in a function."""

_Named = namedtuple("_Named", "item")
_FIELDS = types.MemberDescriptorType, type(_Named.item)
"""Types of what reads slots, and items of named tuples."""


class Snapshot:
    """Has what was read of an object while a function is recorded that reads it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method that calls of the object are calls of."""
        return vars(self)[CALLED](*args, **kwargs)


def attribute_of(owner: Any, name: str) -> Any:
    """Return an attribute of an object of a user's class, by Python's rules; `MISSING` of others.

    Methods are bound to the object.

    Examples
    --------
    >>> from gpusched.graph.safety.objects import MISSING, attribute_of
    >>> class Scale:
    ...     unit = "m"
    ...
    ...     def __init__(self):
    ...         self.factor = 2.0
    ...
    ...     @property
    ...     def double(self):
    ...         return self.factor * 2
    >>> [attribute_of(Scale(), name) for name in ("factor", "unit")]
    [2.0, 'm']
    >>> attribute_of(Scale(), "double") is MISSING
    True
    """
    kind = type(owner)
    if not _is_plain(kind):
        return MISSING
    found = _of_class(kind, name)
    if type(found) in _FIELDS:
        try:
            return found.__get__(owner, kind)
        except AttributeError:  # The slot is empty.
            return MISSING
    if _has(found, "__set__") or _has(found, "__delete__"):
        return MISSING
    shown = _of_class(kind, "__dict__")
    if shown is not MISSING:
        plain = types.GetSetDescriptorType, types.MemberDescriptorType
        names = shown.__get__(owner, kind) if type(shown) in plain else None
        if type(names) is not dict:
            return MISSING
        if name in names:
            return names[name]
    if type(found) is staticmethod:
        return found.__func__
    if type(found) is types.FunctionType:
        return types.MethodType(found, owner)
    return MISSING if _has(found, "__get__") else found


def method_of(owner: Any) -> Any:
    """Return the method that calls of an object are calls of; `MISSING` if it is not Python's."""
    found = _of_class(type(owner), "__call__") if _is_plain(type(owner)) else MISSING
    return types.MethodType(found, owner) if type(found) is types.FunctionType else MISSING


def _is_plain(kind: type) -> bool:
    """Return whether a class is none of Python's own, and leaves attributes to Python to find."""
    made = type(kind) in (type, ABCMeta) and kind.__flags__ & _MADE
    plain = made or kind is types.SimpleNamespace
    found: Any = kind.__getattribute__
    return bool(plain) and any([found is each for each in _FINDS])


def _of_class(kind: type, name: str) -> Any:
    """Return what the first of a class and its bases has that has something of a name."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), MISSING)


def _has(value: Any, name: str) -> bool:
    """Return whether the class of a value has a method that Python calls for attributes."""
    return _of_class(type(value), name) is not MISSING
