"""What the policy ``process`` sends between a process and its child."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.proxy_operations import Operation


@dataclass(frozen=True)
class Reference:
    """An object that stays in the child."""

    number: int
    """By which the child knows it."""
    specials: frozenset[str]
    """Its special methods."""
    kind: tuple[str, str]
    """The module and name of its type."""
    text: str
    """How messages show it."""


@dataclass(frozen=True)
class Hold:
    """Asks the child to unpickle an object and to keep it."""

    content: bytes
    package: Package


@dataclass(frozen=True)
class Apply:
    """Asks the child to carry out an operation on an object that it keeps."""

    number: int
    operation: Operation
    args: tuple[Any, ...]
    dropped: tuple[int, ...]
    """Objects that nobody refers to any more."""


@dataclass(frozen=True)
class Returned:
    """What an operation returned: a value, or a reference to it."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """What an operation raised, with the child's traceback as a note."""

    error: BaseException


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: Any, name: Callable[[Any], int | None]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._name = name

    def persistent_id(self, value: Any) -> Any:
        return self._name(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, find: Callable[[int], Any]) -> None:
        super().__init__(file)
        self._find = find

    def persistent_load(self, number: Any) -> Any:
        return self._find(number)


def dumps(message: Any, name: Callable[[Any], int | None] = lambda value: None) -> bytes:
    """Return a message as bytes; ``name`` gives the numbers of objects that are in the child."""
    file = io.BytesIO()
    _Pickler(file, name).dump(message)
    return file.getvalue()


def loads(content: bytes, find: Callable[[int], Any] = lambda number: None) -> Any:
    """Return the message that bytes hold; ``find`` gives the objects that are in the child."""
    return _Unpickler(io.BytesIO(content), find).load()
