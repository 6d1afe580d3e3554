"""What a proxy holds where threads do not share one object: an instance for each, or elsewhere."""

from __future__ import annotations

import copy
import sys
import threading
import types
from collections.abc import Callable, Hashable
from typing import Any

from gpusched import forks
from gpusched.threadsafe.specials import specials

Make = Callable[[], Any]
"""Makes one more instance."""


class Target:
    """Stands for an object that is not simply at hand."""

    __slots__ = ()

    def kind(self) -> type | None:
        """Return the object's type, or None where it is not known in this process."""
        raise NotImplementedError

    def specials(self) -> frozenset[str]:
        """Return the names of its special methods."""
        raise NotImplementedError


_UNNAMED = {kind.__name__: kind for kind in vars(types).values() if isinstance(kind, type)}
"""Types such as that of generators, which have no name in any module."""


class Named(Target):
    """An object of which only names are known here: of its special methods, and of its type."""

    __slots__ = ("known",)

    def __init__(self, known: tuple[frozenset[str], tuple[str, str]]) -> None:
        self.known = known

    def kind(self) -> type | None:
        """Return the type of the object, or None where this process has not imported it."""
        module, name = self.known[1]
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, type) else _UNNAMED.get(name)

    def specials(self) -> frozenset[str]:
        """Return the special methods that the type has."""
        return self.known[0]


class Unloaded(Named):
    """A pickled object."""

    __slots__ = ("content",)

    def __init__(self, content: bytes, known: tuple[frozenset[str], tuple[str, str]]) -> None:
        super().__init__(known)
        self.content = content


class Copy:
    """Makes copies of an object that nobody else uses; picklable if the object is.

    Notes
    -----
    Thread-safe: one copy is made at a time.
    """

    def __init__(self, original: Any) -> None:
        self._original = original
        self._lock = forks.lock()

    def __call__(self) -> Any:
        """Return a new copy."""
        with self._lock:
            return copy.deepcopy(self._original)

    def __reduce__(self) -> tuple[Any, ...]:
        return Copy, (self._original,)


class Again:
    """Calls a function once more, with the same arguments; picklable if all of them are.

    Arrays among them are copied, for what is made may work in them.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...],
                 kwargs: dict[str, Any]) -> None:  # fmt: skip
        self._call = (function, args, kwargs)

    def __call__(self) -> Any:
        """Return what the function returns this time."""
        function, args, kwargs = self._call
        own = {key: _own(value) for key, value in kwargs.items()}
        return function(*map(_own, args), **own)

    def __reduce__(self) -> tuple[Any, ...]:
        return Again, self._call


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if hasattr(type(value), "__dlpack__") else value


class Instances(Target):
    """An instance for each key, made when it is first used.

    Notes
    -----
    Thread-safe. Two threads with the same key may make an instance each; one of them is kept.
    """

    __slots__ = ("_first", "_found", "make")

    def __init__(self, make: Make, found: _Found, first: Any) -> None:
        self.make = make
        self._first = type(first)
        self._found = found

    def here(self) -> Any:
        """Return the instance of the present thread or device."""
        try:
            return self._found.get()
        except LookupError:
            return self._found.keep(self.make())

    def kind(self) -> type:
        """Return the type of the instances."""
        return self._first

    def specials(self) -> frozenset[str]:
        """Return the special methods that the type has."""
        return specials(self._first)


class _Found:
    """Where instances are kept."""

    def get(self) -> Any:
        """Return this thread's or device's; LookupError if there is none."""
        raise NotImplementedError

    def keep(self, instance: Any) -> Any:
        """Keep one, and return the one that is kept."""
        raise NotImplementedError


class ByThread(_Found):
    """Keeps an instance for each thread, until the thread ends."""

    def __init__(self) -> None:
        self._local = threading.local()

    def get(self) -> Any:
        """Return this thread's instance; raise LookupError if it has none."""
        try:
            return self._local.instance
        except AttributeError:
            raise LookupError("none in this thread") from None

    def keep(self, instance: Any) -> Any:
        """Keep an instance for this thread, and return it."""
        self._local.instance = instance
        return instance


class ByKey(_Found):
    """Keeps an instance for each key, which a function returns."""

    def __init__(self, key: Callable[[], Hashable]) -> None:
        self._key = key
        self._kept: dict[Hashable, Any] = {}

    def get(self) -> Any:
        """Return the instance of the current key; raise LookupError if it has none."""
        return self._kept[self._key()]

    def keep(self, instance: Any) -> Any:
        """Keep an instance for the current key unless it has one; return the one kept."""
        return self._kept.setdefault(self._key(), instance)
