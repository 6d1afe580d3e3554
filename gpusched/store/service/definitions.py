"""Kernels as JSON has them, and back."""

from __future__ import annotations

import types
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpusched.emit.kernel import Kernel


class DefinitionError(ValueError):
    """Data is not a kernel's definition."""


def to_data(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as mappings, lists, texts and numbers.

    Examples
    --------
    >>> from gpusched.emit.kernel import Kernel
    >>> from gpusched.store.service.definitions import from_data, to_data
    >>> kernel = Kernel((), ("float64",), (), (), ("map",))
    >>> from_data(to_data(kernel)) == kernel
    True
    """
    return asdict(kernel)


def from_data(data: Any) -> Kernel:
    """Return the kernel of what `to_data` returned, lists in place of tuples.

    Raises
    ------
    DefinitionError
        If it is something else.
    """
    found = _value(Kernel, data)
    assert isinstance(found, Kernel)
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data)
    if origin is tuple and isinstance(data, list | tuple):
        (item, _) = get_args(kind)
        return tuple(_value(item, each) for each in data)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(data, dict):
        hints = _hints(kind)
        if data.keys() != {field.name for field in fields(kind)}:
            raise DefinitionError(f"a {kind.__name__} of {sorted(data)}")
        return kind(**{name: _value(hints[name], each) for name, each in data.items()})
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(data, str):
        return kind(data)
    if isinstance(kind, type) and type(data) is kind:
        return data
    raise DefinitionError(f"{data!r:.100}, where {kind} is expected")


def _one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and types.NoneType in kinds:
        return None
    for kind in kinds:
        try:
            return _value(kind, data)
        except DefinitionError:
            continue
    raise DefinitionError(f"{data!r:.100}, where one of {kinds} is expected")
