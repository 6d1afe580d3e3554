"""Waiting for a policy: without deadlocks, not on event loops, not for cancelled tasks, logged.

Each wait is known to all, so that the one that would close a cycle is refused. A thread waits for
one resource at a time, and goes on as soon as one of the resource's holders gives it up; so it can
go on if, and only if, a thread that waits for nothing can be reached from it. What a thread waits
for may be its own already when others look: it has yet to wake and say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from dask.utils import parse_timedelta

from gpusched import config, events
from gpusched.threadsafe import threads
from gpusched.threadsafe.counts import Counts
from gpusched.threadsafe.errors import BlockedLoopError, DeadlockError, TaskCancelledError

logger = logging.getLogger(__name__)

INTERVAL = 0.1
"""Seconds after which a waiting thread looks whether its task is still wanted."""


class Resource(Protocol):
    """What threads wait for."""

    counts: Counts

    def holders(self) -> Iterable[threads.Thread]:
        """Return the threads that one of has to give it up, or nothing where it can be had."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Wait:
    """One thread's wait for a resource."""

    resource: Resource
    is_over: Callable[[], bool]
    """Whether the thread has been given the resource."""


_waits = threading.Lock()
"""Held while a thread's ``waiting`` is written, and while chains of waits are followed."""

is_cancelled: Callable[[Any], bool] = lambda key: False  # noqa: E731
"""Returns whether a task of this worker's is not wanted any more. Replaced by the worker."""


def forget_others() -> None:
    """Start again in a forked process, whose only thread waits for nothing."""
    global _waits
    _waits = threading.Lock()
    threads.current().waiting = None


def mutex() -> threading.Lock:
    """Return the lock under which waits are written."""
    return _waits


def refuse_loop(resource: Resource, me: threads.Thread) -> NoReturn:
    """Raise `BlockedLoopError`."""
    raise BlockedLoopError(
        f"{resource} is taken by {_told(resource)}, and {me} must not wait, for its event loop "
        "answers the cluster. Await asyncio.to_thread(function, ...) instead"
    )


@contextmanager
def waiting(
    resource: Resource, is_over: Callable[[], bool], count: bool = True
) -> Iterator[Callable[[], None]]:
    """Let the calling thread wait for a resource.

    Raises `DeadlockError` if the wait would never end; `BlockedLoopError` if this thread's event
    loop would stand still; `TaskCancelledError` by what it yields, once the task of this thread is
    cancelled.

    Parameters
    ----------
    resource
        What it waits for.
    is_over
        Says to any thread whether this one has been given it; true from that moment on until the
        wait is left.
    count
        Whether the wait is counted here.

    Yields
    ------
    callable
        To be called every `INTERVAL` while it waits. Logs a long wait with the holder.
    """
    me = threads.current()
    if me.answers_loop:
        refuse_loop(resource, me)
    with _waits:
        me.waiting = Wait(resource, is_over)
        chain = _closed_chain(me)
        if chain:
            me.waiting = None
            resource.counts.deadlocks += 1
            raise DeadlockError(_describe(me, resource, chain))
    started = time.monotonic()
    holder = _told(resource) if count and events.active else ""
    try:
        yield _watch(resource, me, started)
    finally:
        with _waits:
            me.waiting = None
            if count:
                resource.counts.waited(time.monotonic() - started)
        if count:
            note(resource, holder, started, time.monotonic())


def note(resource: Resource, holder: str, started: float, ended: float) -> None:
    """Note a wait of the calling thread for profiles; times are of `time.monotonic`."""
    if events.active:
        shift = time.perf_counter() - time.monotonic()
        events.record("wait", str(resource), started + shift, ended + shift, about=holder)


def _closed_chain(me: threads.Thread) -> list[tuple[threads.Thread, Resource]]:
    """Return all waits that ``me`` depends on, or nothing where one of them can end."""
    found: list[tuple[threads.Thread, Resource]] = []
    seen: set[threads.Thread] = set()
    to_do = [me]
    while to_do:
        thread = to_do.pop()
        if thread in seen:
            continue
        seen.add(thread)
        wait = thread.waiting
        # In this order: a thread that is given the resource in between is seen by the second.
        holders = list(wait.resource.holders()) if wait is not None else []
        if wait is None or not holders or wait.is_over() or not thread.lives():
            return []
        found.append((thread, wait.resource))
        to_do += holders
    return found


def _describe(
    me: threads.Thread, resource: Resource, chain: list[tuple[threads.Thread, Resource]]
) -> str:
    names = " and ".join(sorted({str(wanted) for _, wanted in chain}))
    told = [
        f"{thread} waits for {wanted}, which {_told(wanted)} has:\n{thread.stack()}"
        for thread, wanted in chain
    ]
    return (
        f"waiting for {resource} would never end: {names} are taken in different orders. Take them "
        f"always in the same one, or use one name for both\n" + "".join(told)
    )


def _told(resource: Resource) -> str:
    return ", ".join(str(holder) for holder in resource.holders()) or "nobody"


def _watch(resource: Resource, me: threads.Thread, started: float) -> Callable[[], None]:
    limit = parse_timedelta(config.get("threadsafe.slow-wait"))
    due = [limit]

    def look() -> None:
        if me.task and is_cancelled(me.task):
            raise TaskCancelledError(
                f"task {me.task!r} was cancelled while it waited for {resource}"
            )
        waited = time.monotonic() - started
        if limit and waited >= due[0]:
            due[0] = 2 * waited
            stacks = "".join(f"{holder}:\n{holder.stack()}" for holder in resource.holders())
            logger.warning(
                "%s has waited %.1f s for %s, taken by %s", me, waited, resource, stacks or "nobody"
            )

    return look
