"""Machine code that others have made: each kernel is compiled once in a cluster.

What is wanted is looked for on disk. What is not there is this process's to have made, as soon as
no other worker of its cluster is making it, whose code comes over the network otherwise. On one
machine the compile service sees to it that each kernel is compiled once: `gpusched.store.service`.
Waiting has an end, after which a kernel is compiled all the same: compiling twice costs time, and
nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Protocol, TypeVar

import dask
from dask.utils import parse_timedelta

from gpusched import events
from gpusched.dataclass import dataclass
from gpusched.store import codefiles, kernelfiles
from gpusched.store.service import client as service
from gpusched.store.statistics import updating

logger = logging.getLogger(__name__)

T = TypeVar("T")

Load = Callable[[bytes], T]
"""Makes something to call from code."""
Build = Callable[[], tuple[T, bytes | None]]
"""Compiles; returns something to call, and its code unless that is good in this process only."""


class NotSharedError(Exception):
    """Other workers' code cannot be had; the message is a short reason, to be counted."""


class Exchange(Protocol):
    """Where a process asks for code that others have made, and gives what it has made.

    Any thread may call it.
    """

    def request(self, key: str, patience: float) -> bytes | None:
        """Return sealed code; None if it is the caller's to make, and to `publish`.

        Raises
        ------
        NotSharedError
            If there was no answer within so many seconds.
        """

    def publish(self, key: str, sealed: bytes | None) -> None:
        """Give others what was made; None if it cannot be given, or could not be made."""

    def keep(self, key: str, path: Path) -> None:
        """Let others know that code is in a file here."""


exchanges: list[Exchange] = []
"""Those of this process's workers; the first is used."""


DISK, CLUSTER, COMPILED = "disk", "cluster", "compiled"
"""Where machine code came from, as profiles say it."""


@dataclass(frozen=True)
class Wanted:
    """Machine code of one kernel, for one kind of processor."""

    name: str
    """The kernel's, for people."""
    key: str
    """Of everything that the code depends on; equal keys mean code that can be exchanged."""
    path: Path | None
    """Where it is kept; None for nowhere."""

    @property
    def is_kept(self) -> bool:
        """Whether there is a file of it."""
        # A folder that this user may not enter is as good as none.
        return self.path is not None and os.path.exists(self.path)


def patience() -> float:
    """Return the seconds to wait for another that compiles the same kernel."""
    configured = dask.config.get("gpusched.fusion.compile-patience", "60s")
    return float(parse_timedelta(configured))


def obtain(wanted: Wanted, load: Load[T], build: Build[T]) -> T:
    """Return something to call.

    Parameters
    ----------
    wanted
        What to look for.
    load
        Called with code that was found; whatever it raises is logged, and the code is built.
    build
        Called where there is none. Its errors are the caller's.
    """
    started = perf_counter()
    kept = _from_disk(wanted, load, complain=True)
    found, source = _shared(wanted, load, build) if kept is None else (kept, DISK)
    _record(wanted, started, source)
    if service.awaited():
        with updating() as counters:
            counters.compile_seconds += perf_counter() - started
    return found


def known(wanted: Wanted, load: Load[T]) -> T | None:
    """Return something to call, if there is a file of its code; nobody is asked, or waited for.

    Parameters
    ----------
    wanted, load
        As in `obtain`.
    """
    started = perf_counter()
    found = _from_disk(wanted, load)
    if found is not None:
        _record(wanted, started, DISK)
    return found


def _record(wanted: Wanted, started: float, source: str) -> None:
    if events.active:
        events.record_since("compile", wanted.name, started, about=source)


def unshared(wanted: Wanted, reason: str) -> None:
    """Count and log why a kernel may be compiled once more than need be."""
    _count_unshared(reason)
    # What no task waits for may be given up when its process ends.
    level = logging.WARNING if service.awaited() else logging.INFO
    logger.log(level, "kernel %s may be compiled more than once: %s", wanted.name, reason)


def _count_unshared(reason: str) -> None:
    with updating() as counters:
        counters.kernels_unshared[reason] += 1


def _from_disk(wanted: Wanted, load: Load[T], complain: bool = False) -> T | None:
    content = codefiles.read(wanted.path, kernelfiles.LEVELS) if wanted.path else None
    if content is None:
        return None
    found = _loaded(wanted, content, load, "a damaged file" if complain else "")
    if found is None:
        return None
    if wanted.path is not None:
        kernelfiles.touch(wanted.path)
    _announce(wanted)
    with updating() as counters:
        counters.kernels_loaded += 1
    return found


def _loaded(wanted: Wanted, sealed: bytes, load: Load[T], problem: str) -> T | None:
    try:
        return load(codefiles.unseal(wanted.key, sealed))
    except Exception as error:  # noqa: BLE001
        # Whatever is wrong with the code, it can be made here.
        if problem:
            logger.warning("code of kernel %s cannot be used: %r", wanted.name, error)
            unshared(wanted, problem)
        return None


def _shared(wanted: Wanted, load: Load[T], build: Build[T]) -> tuple[T, str]:
    exchange = next(iter(exchanges[:1]), None)
    if exchange is None:
        return _built(wanted, build)[0], COMPILED
    sealed = _requested(exchange, wanted)
    if sealed is not None:
        found = _loaded(wanted, sealed, load, "damaged code from the cluster")
        if found is not None:
            _keep(wanted, sealed)
            with updating() as counters:
                counters.kernels_received += 1
            return found, CLUSTER
    sealed = None
    try:
        made, sealed = _built(wanted, build)
    finally:
        exchange.publish(wanted.key, sealed)
    return made, COMPILED


def _requested(exchange: Exchange, wanted: Wanted) -> bytes | None:
    try:
        return exchange.request(wanted.key, patience())
    except NotSharedError as error:
        unshared(wanted, str(error))
        return None


def _built(wanted: Wanted, build: Build[T]) -> tuple[T, bytes | None]:
    made, code = build()
    if code is None:
        return made, None
    sealed = codefiles.seal(wanted.key, code)
    _keep(wanted, sealed)
    return made, sealed


def _keep(wanted: Wanted, sealed: bytes) -> None:
    if wanted.path is None:
        return
    try:
        kernelfiles.keep(wanted.path, sealed)
    except OSError as error:
        kernelfiles.warn_unwritable(wanted.path, error)
        _count_unshared(f"cannot write: {error.strerror or error}")
    else:
        _announce(wanted)


def _announce(wanted: Wanted) -> None:
    for exchange in exchanges[:1]:
        if wanted.path is not None:
            exchange.keep(wanted.key, wanted.path)
