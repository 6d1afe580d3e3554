"""Policies as data: how the calls into a library share the threads of a process."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

_TEXT = re.compile(r"(?P<kind>[a-z_]+)(?:\((?P<arguments>[^()]*)\))?")


@dataclass(frozen=True)
class Policy:
    """How calls share the threads of a process. Immutable and picklable; compared by value."""

    name: str = ""
    """What is shared by all policies of the same kind and name; of the wrapped library if empty."""

    def __str__(self) -> str:
        told = [
            value if field.name == "name" else f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) not in ("", False)
        ]
        kind = next(kind for kind, policy in KINDS.items() if policy is type(self))
        return f"{kind}({', '.join(map(str, told))})"

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
    from gpusched.threadsafe.wrapping import guard_for

    if not policy.name or getattr(policy, "each", False):
        raise ValueError(f"{policy} can be held only with a name, and without each")
    return guard_for(policy)


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
        If that is no positive number.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> print(threadsafe.limit(2, "downloads"))
    limit(downloads, n=2)
    """

    n: int = 1
    """Number of threads."""

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 1:
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
    """Return the policy of one call at a time; see `Lock`."""
    return Lock(name, each)


def one_thread(name: str = "", *, each: bool = False) -> OneThread:
    """Return the policy of every call on one thread; see `OneThread`."""
    return OneThread(name, each)


def limit(n: int, name: str = "") -> Limit:
    """Return the policy of at most ``n`` calls at a time; see `Limit`."""
    return Limit(name, n)


def per_thread(name: str = "") -> PerThread:
    """Return the policy of an instance for each thread; see `PerThread`.

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
    """Return the policy of an instance for each GPU; see `PerDevice`."""
    return PerDevice(name)


def process(name: str = "") -> Process:
    """Return the policy of calls in a child process; see `Process`."""
    return Process(name)


def parse(text: str) -> Policy:
    """Return the policy that a setting tells.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> from gpusched.threadsafe.kinds import parse
    >>> parse("limit(gdal, n=2)")
    Limit(name='gdal', n=2)
    >>> parse("lock")
    Lock(name='', each=False)
    """
    match = _TEXT.fullmatch(text.strip())
    kind = KINDS.get(match["kind"]) if match else None
    if match is None or kind is None:
        raise ValueError(
            f"{text!r} is no policy: write one of {', '.join(KINDS)}, as in lock(hdf5)"
        )
    given: dict[str, Any] = {}
    for argument in filter(None, map(str.strip, (match["arguments"] or "").split(","))):
        key, equals, value = argument.partition("=")
        given[key.strip() if equals else "name"] = _value(value.strip()) if equals else argument
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no policy: {error}") from None


def _value(text: str) -> Any:
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdecimal() else text
