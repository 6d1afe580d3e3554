"""Policies as data: how the calls into a library share the threads of a process."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from gpusched.threadsafe import registry

_TEXT = re.compile(r"(?P<kind>\w+)(?:\((?P<arguments>.*)\))?", re.DOTALL)
_BARE = r"[^\W\d][\w .-]*"
"""A name that needs no quotes in a string."""
_NUMBER = r"-?(?:0|[1-9][0-9]*)"
_ARGUMENT = re.compile(
    r"\s*(?:(?P<key>[a-z_]+)\s*=\s*)?"
    rf"(?P<value>{_NUMBER}|{_BARE}|'[^'\\]*'|\"[^\"\\]*\")\s*(?:,|$)"
)


@dataclass(frozen=True)
class Policy:
    """How calls share the threads of a process. Immutable and picklable; compared by value."""

    name: str = ""
    """What is shared by all policies of the same kind and name; of the wrapped library if empty."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a policy is text, not {self.name!r}")
        if not isinstance(getattr(self, "each", False), bool):
            raise TypeError(f"each is True or False, not {self.each!r}")  # type: ignore[attr-defined]

    def __str__(self) -> str:
        told = [str(self.n)] if isinstance(self, Limit) else []
        if self.name:
            told.append(self.name if _is_bare(self.name) else repr(self.name))
        if getattr(self, "each", False):
            told.append("each=True")
        kind = next(kind for kind, policy in KINDS.items() if policy is type(self))
        return f"{kind}({', '.join(told)})"

    def named(self, name: str) -> Policy:
        """Return the policy with a name, if it has none."""
        if self.name:
            return self
        return type(self)(**{**{f.name: getattr(self, f.name) for f in fields(self)}, "name": name})


class _Held:
    """Policies that can be held over several calls, as a lock of `threading` is."""

    def acquire(self) -> None:
        """Wait for it, and take it in this process; once more if this thread has it already."""
        _guard(self).acquire()

    def release(self) -> None:
        """Give it back."""
        _guard(self).release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def _guard(policy: Any) -> Any:
    if not policy.name or getattr(policy, "each", False):
        raise ValueError(f"{policy} can be held only with a name, and without each")
    return registry.guard_for(policy)


@dataclass(frozen=True)
class Lock(_Held, Policy):
    """One call at a time, under a re-entrant lock of the process.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> print(threadsafe.lock("hdf5"))
    lock(hdf5)
    >>> with threadsafe.lock("hdf5"):
    ...     pass
    """

    each: bool = False
    """Whether what wrapped functions return, such as an opened file, gets a lock of its own."""


@dataclass(frozen=True)
class OneThread(Policy):
    """Every call on one thread that does nothing else, for libraries that are tied to a thread.

    Examples
    --------
    >>> import threading
    >>> from gpusched import threadsafe
    >>> current = threadsafe.wrap(threading.current_thread, threadsafe.one_thread("example"))
    >>> current().name
    'gpusched one_thread(example)'
    """

    each: bool = False
    """Whether what wrapped functions return, such as a connection, gets a thread of its own."""


@dataclass(frozen=True)
class Limit(_Held, Policy):
    """At most so many calls at a time.

    Raises
    ------
    ValueError
        If that is not a positive number.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> print(threadsafe.limit(2, "downloads"))
    limit(2, downloads)
    """

    n: int = 1
    """Number of threads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.n) is not int or self.n < 1:
            raise ValueError(f"a limit is a positive number of threads, not {self.n!r}")


@dataclass(frozen=True)
class PerThread(Policy):
    """An instance for each thread.

    What is wrapped is copied for each thread that uses it. A wrapped function or class is called
    once more, with the same arguments, in each thread that uses its result.
    """


@dataclass(frozen=True)
class PerDevice(Policy):
    """An instance for each GPU, and one call on it at a time; as `PerThread` otherwise."""


@dataclass(frozen=True)
class Process(Policy):
    """In a child process, one call at a time, for what cannot share a process."""


KINDS: dict[str, type[Policy]] = {
    "lock": Lock,
    "one_thread": OneThread,
    "limit": Limit,
    "per_thread": PerThread,
    "per_device": PerDevice,
    "process": Process,
}
"""The policies by the names they have in settings."""


def lock(name: str = "", *, each: bool = False) -> Lock:
    """Return the policy of one call at a time; see `Lock`.

    Parameters
    ----------
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.
    each : bool
        Whether each object that wrapped functions return is protected by itself.
    """
    return Lock(name, each)


def one_thread(name: str = "", *, each: bool = False) -> OneThread:
    """Return the policy of every call on one thread; see `OneThread`.

    Parameters
    ----------
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.
    each : bool
        Whether each object that wrapped functions return is protected by itself.
    """
    return OneThread(name, each)


def limit(n: int, name: str = "") -> Limit:
    """Return the policy of at most ``n`` calls at a time; see `Limit`.

    Parameters
    ----------
    n : int
        Number of threads.
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.

    Raises
    ------
    ValueError
        If that is not a positive number.
    """
    return Limit(name, n)


def per_thread(name: str = "") -> PerThread:
    """Return the policy of an instance for each thread; see `PerThread`.

    Parameters
    ----------
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.

    Examples
    --------
    >>> import sqlite3
    >>> from gpusched import threadsafe
    >>> connect = threadsafe.wrap(sqlite3.connect, threadsafe.per_thread())
    >>> database = connect(":memory:")
    >>> database.execute("select 1 + 1").fetchone()
    (2,)
    """
    return PerThread(name)


def per_device(name: str = "") -> PerDevice:
    """Return the policy of an instance for each GPU; see `PerDevice`.

    Parameters
    ----------
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.
    """
    return PerDevice(name)


def process(name: str = "") -> Process:
    """Return the policy of calls in a child process; see `Process`.

    Parameters
    ----------
    name : str
        What all policies of the same kind and name share; by default, the wrapped library's name.
    """
    return Process(name)


_MAKERS: dict[str, Callable[..., Policy]] = {
    "lock": lock,
    "one_thread": one_thread,
    "limit": limit,
    "per_thread": per_thread,
    "per_device": per_device,
    "process": process,
}


def parse(text: str) -> Policy:
    """Return the policy that a setting names.

    A string is read as the call in Python, of the function of that name with the same arguments, in
    which names may be written without quotes. ``lock`` alone is ``lock()``. Raises `ValueError` if
    it is none.

    Examples
    --------
    >>> from gpusched.threadsafe.policies import parse
    >>> parse("limit(2, gdal)")
    Limit(name='gdal', n=2)
    >>> parse("lock")
    Lock(name='', each=False)
    """
    match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
    maker = _MAKERS.get(match["kind"]) if match else None
    if match is None or maker is None:
        raise ValueError(
            f"{text!r} is not a policy: write one of {', '.join(KINDS)}, as in lock(hdf5)"
        )
    try:
        args, kwargs = _arguments(match["arguments"] or "")
        return maker(*args, **kwargs)
    except (TypeError, ValueError) as error:
        usage = f"{match['kind']}{inspect.signature(maker, eval_str=False)}".partition(" ->")[0]
        raise ValueError(f"{text!r} is not a policy: {error}; it is {usage}") from None


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    place = 0
    while text.strip() and place < len(text):
        found = _ARGUMENT.match(text, place)
        if found is None:
            raise ValueError(f"cannot read {text[place:].strip()!r}")
        key, value = found["key"], _value(found["value"].strip())
        if key is None and kwargs:
            raise ValueError(f"{value!r} follows an argument with a name")
        if key in kwargs:
            raise ValueError(f"{key} is given twice")
        if key is None:
            args.append(value)
        else:
            kwargs[key] = value
        place = found.end()
    return args, kwargs


def _is_bare(name: str) -> bool:
    return re.fullmatch(_BARE, name) is not None and _value(name) == name == name.strip()


def _value(text: str) -> Any:
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    if text == "None":
        return None
    if re.fullmatch(_NUMBER, text):
        return int(text)
    return text[1:-1] if text[0] in "'\"" else text
