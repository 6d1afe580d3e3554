"""What happens in this process, noted while somebody profiles.

Whoever does something that a profile shows asks ``if events.active`` first: nothing else is spent
while nobody profiles.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from time import perf_counter
from typing import Any, NamedTuple

from gpusched import forks
from gpusched.dataclass import dataclass
from gpusched.roles import current_key

LIMIT = 200_000
"""Events that one recording holds; what comes after is counted only. About 100 bytes each."""


class Event(NamedTuple):
    """Something that took time, in one thread."""

    kind: str
    """Such as ``"kernel"``, ``"task"`` or ``"compile"``."""
    name: str
    start: float
    """Seconds of this process's `time.perf_counter`."""
    end: float
    thread: int
    """The thread's identifier, which another thread may have had before."""
    thread_name: str
    task: Any
    """Key of the task that the thread ran; None if that is not known, or there was none."""
    nbytes: int
    """Read and written, sent, or compressed; 0 where bytes have no meaning."""
    about: Any
    """What else is known, as its kind has it."""


@dataclass
class Recording:
    """Events of this process, for one profile.

    Notes
    -----
    Any thread may add events. Threads that add the last ones at the same time may exceed `limit`
    by one each.
    """

    limit: int = LIMIT
    events: list[tuple[Any, ...]] = field(default_factory=list)
    """Fields of `Event`; plain tuples, which cost less to make."""
    dropped: int = 0
    """Events that had no room. A few may be missed, since it is counted without a lock."""
    origins: dict[Any, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    """By a program's task: the register that its first call writes, and the key of the task that
    each of its calls was."""
    elsewhere: int = 0
    """Computations whose tasks ran in processes that nobody records."""
    users: int = 1
    """Who has started it, and not stopped it yet."""


active: tuple[Recording, ...] = ()
"""Recordings that go on; replaced, never changed."""

_recordings: dict[str, Recording] = {}
_lock = forks.lock()


class Thread(threading.local):
    """What is known of the calling thread."""

    task: Any = None
    """Key of the task that it runs, as `gpusched.profiling` sets it."""
    is_rehearsing: bool = False
    """Whether it goes through tasks without computing, as `rehearsing` has it."""

    def __init__(self) -> None:
        known = threading.current_thread()
        self.ident = known.ident
        self.name = known.name


thread = Thread()


def start(token: str, limit: int = LIMIT) -> Recording:
    """Begin a recording, or take part in the one of that token.

    Parameters
    ----------
    token
        The profile's. Several workers of one process share its recording.
    limit
        Events at most.

    Examples
    --------
    >>> from gpusched import events
    >>> recording = events.start("example")
    >>> events.record("task", "f", 1.0, 2.0)
    >>> events.stop("example")
    >>> [(event.name, event.end) for event in events.taken(recording)]
    [('f', 2.0)]
    """
    with _lock:
        found = _recordings.get(token)
        if found is not None:
            found.users += 1
            return found
        found = _recordings[token] = Recording(limit)
        _publish()
        return found


def stop(token: str) -> None:
    """End what one `start` began; the last one ends the recording. Unknown tokens are ignored."""
    with _lock:
        found = _recordings.get(token)
        if found is None:
            return
        found.users -= 1
        if found.users <= 0:
            del _recordings[token]
            _publish()


def recording_of(token: str) -> Recording | None:
    """Return the recording of that token, if it goes on in this process."""
    return _recordings.get(token)


def _publish() -> None:
    global active
    active = tuple(_recordings.values())


def taken(recording: Recording) -> list[Event]:
    """Return the events so far."""
    return [Event._make(event) for event in list(recording.events)]


def record(
    kind: str, name: str, start: float, end: float, nbytes: int = 0, about: Any = None
) -> None:
    """Note that the calling thread did something; to be called where `active` says so."""
    here = thread
    if here.is_rehearsing:
        return
    key = here.task
    event = (kind, name, start, end, here.ident, here.name,
             current_key() if key is None else key, nbytes, about)  # fmt: skip
    for recording in active:
        if len(recording.events) < recording.limit:
            recording.events.append(event)
        else:
            recording.dropped += 1


@contextmanager
def rehearsing() -> Iterator[None]:
    """Have nothing noted of what the calling thread does, since no chunk is computed.

    Examples
    --------
    >>> from gpusched import events
    >>> recording = events.start("example")
    >>> with events.rehearsing():
    ...     events.record("kernel", "f", 1.0, 2.0)
    >>> events.stop("example")
    >>> events.taken(recording)
    []
    """
    outer, thread.is_rehearsing = thread.is_rehearsing, True
    try:
        yield
    finally:
        thread.is_rehearsing = outer


def record_since(kind: str, name: str, start: float, nbytes: int = 0, about: Any = None) -> None:
    """Note what the calling thread has done from `start` until now."""
    record(kind, name, start, perf_counter(), nbytes, about)


def origin(key: Any, first: int, keys: tuple[Any, ...]) -> None:
    """Note the tasks that the calls of a program were, for the lines behind its kernels."""
    if thread.is_rehearsing:
        return
    for recording in active:
        if len(recording.origins) < recording.limit:
            recording.origins[key] = first, keys
