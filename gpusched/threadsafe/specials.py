"""The special methods of a type, which Python looks up in the type, never in the object."""

from __future__ import annotations

import types
import weakref

_LEFT_OUT = frozenset(
    f"__{name}__"
    for name in (
        "new", "init", "class", "getattribute", "getattr", "setattr", "delattr", "init_subclass",
        "subclasshook", "reduce", "reduce_ex", "getstate", "setstate", "getnewargs",
        "getnewargs_ex", "del", "dict", "weakref", "slots", "copy", "deepcopy", "call", "get",
        "class_getitem", "prepare", "set_name", "doc", "sizeof", "module", "annotations", "await",
        "aiter", "anext", "aenter", "aexit",
    )
)  # fmt: skip
"""Special methods that a proxy has of its own, or that are not looked up on instances."""

_specials: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def specials(kind: type) -> frozenset[str]:
    """Return the special methods that a proxy for objects of a type needs.

    Examples
    --------
    >>> from gpusched.threadsafe.specials import specials
    >>> "__getitem__" in specials(list), "__hash__" in specials(list)
    (True, False)
    """
    found = _specials.get(kind)
    if found is None:
        names = [name for name in dir(kind) if name.startswith("__") and name.endswith("__")]
        found = frozenset(n for n in names if n not in _LEFT_OUT and _is_special(kind, n))
        if any("__call__" in vars(base) for base in kind.__mro__):
            found |= {"__call__"}
        if issubclass(kind, types.FunctionType):
            found |= {"__get__"}
        if issubclass(kind, type):
            found |= {"__mro_entries__"}
        _specials[kind] = found
    return found


def _is_special(kind: type, name: str) -> bool:
    for base in kind.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            return callable(value) or isinstance(value, (classmethod, staticmethod))
    # In the type's own type: not looked up on its instances.
    return False
