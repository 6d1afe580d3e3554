"""What proxies do with the objects that they stand for, as functions that can be sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Operation = Callable[..., Any]
"""Takes the object, and what else it needs."""


def call(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an object."""
    return value(*args, **kwargs)


def call_method(value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an object's method."""
    return getattr(value, name)(*args, **kwargs)


def invoke(value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a special method, which Python looks up in an object's type."""
    return getattr(type(value), name)(value, *args, **kwargs)


def as_it_is(value: Any) -> Any:
    """Return the object itself."""
    return value
