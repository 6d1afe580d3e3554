"""Asks the compile service for kernels, and starts it where there is none."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gpusched import config, forks
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import to_data
from gpusched.emit.operations import DEFINED
from gpusched.store import (
    codefiles,
    emitters,
    kernelfiles,
    processors,
    unfused,
    worthwhile,
)
from gpusched.store.service.connection import (
    PATIENCE,
    Connection,
    ServiceLostError,
    SilentServiceError,
)
from gpusched.store.service.start import (
    KilledError,
    Place,
    UnavailableError,
    connected,
    folder,
    leave_for,
)
from gpusched.store.statistics import count_compilation, updating

if TYPE_CHECKING:
    from gpusched.emit.kernel import Kernel
    from gpusched.store.sharing import Wanted

logger = logging.getLogger(__name__)

TRIES = 3
"""How often a request is made, if the service ends while it has it."""
STARTING = 0.5
"""Seconds of processor time that a service takes to start, and to import its compiler: 0.14 and
0.36 on an EPYC. A process that compiles for itself imports the compiler only, which is half."""
LEAVING = 1.0
"""Seconds that a process waits at its end for a service that does not take its requests."""
ANSWER = 5.0
"""Seconds that a service has to say what it is doing, to somebody who only wants to show it."""


class CompilerDiedError(RuntimeError):
    """The processes that were to compile a kernel have ended of it, or have been ended."""


@dataclass(frozen=True)
class Wish:
    """How much a kernel is wanted."""

    gain: float = 0.0
    """Seconds that are expected to be saved by it."""
    urgent: bool = True
    """Whether it is worth taking time from tasks."""
    awaited: bool = True
    """Whether a task waits for it."""


_AWAITED = Wish()
_wish: ContextVar[Wish] = ContextVar("gpusched-wish", default=_AWAITED)


@contextmanager
def wishing(gain: float, urgent: bool) -> Iterator[None]:
    """Ask for kernels in this thread as ones that no task waits for."""
    token = _wish.set(Wish(gain, urgent, awaited=False))
    try:
        yield
    finally:
        _wish.reset(token)


def awaited() -> bool:
    """Return whether a task waits for what this thread asks for."""
    return _wish.get().awaited


_turn = forks.lock()


@contextmanager
def here() -> Iterator[None]:
    """Compile in this process: one kernel at a time beside tasks, and all at once if tasks wait."""
    if awaited():
        yield
    else:
        with _turn:
            yield


class Client:
    """The connection of a process to the service, made when it is first needed.

    Notes
    -----
    Thread-safe. A process that is forked off has one of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._refusal = ""
        self._numbers = itertools.count()
        self._unanswered: dict[int, dict[str, Any]] = {}

    def ask(self, message: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the answer to a message.

        Raises
        ------
        UnavailableError
            If there is no service, and none can be started.
        """
        number = next(self._numbers)
        self._unanswered[number] = message
        try:
            return self._answer(message)
        finally:
            self._unanswered.pop(number)

    def leave(self) -> None:
        """Let the service go on with what is not answered, whether it has heard of it or not.

        It is not waited for, be it that it has still to be started.
        """
        messages = [{**each, "op": "leave"} for each in list(self._unanswered.values())]
        connection = self._connection
        if connection is not None and not connection.lost:
            for message in messages:
                connection.tell(message)
            connection.wait_until_sent(LEAVING)
        elif messages and not self._refusal:
            leave_for(place(), messages)

    def urge(self, name: str, gain: float) -> None:
        """Let a kernel be compiled sooner whose request has been made, be it sent or not."""
        if self.connected:
            self.tell({"op": "urge", "name": name, "gain": gain})
        for message in list(self._unanswered.values()):
            if message["name"] == name:
                message.update(urgent=True, gain=message["gain"] + gain)

    def _answer(self, message: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        # What can wait starts no service beside tasks; at the process's end it is left for one.
        unfused.running.wait_for_end(unless=lambda: message["urgent"] or self.connected)
        for _ in range(TRIES):
            connection = self._connected()
            try:
                return connection.ask(message, PATIENCE)
            except ServiceLostError:
                logger.info("the compile service ended; another one is started")
            except SilentServiceError as error:
                self._refuse(f"the compile service does not answer: {error}")
        raise UnavailableError(f"the compile service ended {TRIES} times")

    def _refuse(self, reason: str) -> None:
        """Do without a service from now on: another one cannot be started beside it."""
        with self._lock:
            self._refusal = reason

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to a service that there is; without one, nothing happens."""
        connection = self._connection
        if connection is not None:
            connection.tell(message)

    def _connected(self) -> Connection:
        with self._lock:
            if self._refusal:
                raise UnavailableError(self._refusal)
            if self._connection is None or self._connection.lost:
                try:
                    self._connection = Connection(connected(place()))
                except KilledError:
                    raise  # The next request tries again.
                except UnavailableError as error:
                    self._refusal = str(error)
                    raise
            return self._connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a service."""
        connection = self._connection
        return connection is not None and not connection.lost

    def close(self) -> None:
        """Close the connection, and forget what went wrong."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._refusal = ""


_client = Client()


def _begin_again() -> None:
    """Connect again, in a process that has been forked off, where the old locks may be held."""
    global _client
    _client = Client()


os.register_at_fork(after_in_child=_begin_again)


def _leave() -> None:
    _client.leave()


atexit.register(_leave)


def place() -> Place:
    """Return where the service is that makes the machine code of this process.

    Machines may share the folder: a socket there cannot be reached from another one, nor does a
    lock say that somebody listens here.
    """
    parts = [emitters.toolchain(), processors.key(), sys.executable, sys.prefix, platform.node()]
    identity = hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()
    return Place(folder(), identity)


def compiled(kernel: Kernel, wanted: Wanted, cc: tuple[int, int] | None = None) -> bytes | None:
    """Return the machine code of a kernel; None if it is to be compiled in this process.

    Parameters
    ----------
    kernel
        The kernel, with all its options.
    wanted
        The key of the code, and where it is kept.
    cc
        Compute capability of the GPU it is for; None for the CPU.

    Raises
    ------
    CompilerDiedError
        If processes that began it have died: here it could end this one, and would keep each client
        busy with what all have asked for. Plans do without it.
    """
    if not is_used() or not _is_data(kernel):
        return None
    wish = _wish.get()
    message = {
        "op": "compile", "name": wanted.name, "key": wanted.key, "kernel": to_data(kernel),
        "target": "cuda" if cc else "cpu", "cc": cc, "path": wanted.path and str(wanted.path),
        "gain": wish.gain, "urgent": wish.urgent, "awaited": wish.awaited,
    }  # fmt: skip
    try:
        answer, sealed = _client.ask(message)
        if "died" in answer:
            raise CompilerDiedError(answer["error"])
        if "error" in answer:
            logger.debug("the compile service has not made %s: %s", wanted.name, answer["error"])
            return None
        code = codefiles.unseal(wanted.key, sealed)
    except UnavailableError as error:
        _complain(str(error))
        return None
    except codefiles.DamagedCodeError as error:
        logger.warning("the compile service gave damaged code of %s: %s", wanted.name, error)
        return None
    _count(kernel, answer, cc)
    return code


def made_by_anybody(
    kernel: Kernel, wanted: Wanted, prepare: Callable[[], Callable[[], bytes | None]],
    cc: tuple[int, int] | None = None,
) -> bytes | None:  # fmt: skip
    """Return the machine code of a kernel by the service, or as this process makes it.

    It is counted, and for the CPU learned from.

    Parameters
    ----------
    kernel, wanted, cc
        As of `compiled`.
    prepare
        Imports what compiles, outside of a kernel's time; returns what makes the code here.
    """
    code = compiled(kernel, wanted, cc)
    if code is not None:
        return code
    make = prepare()
    with here():
        started = time.thread_time()
        code = make()
        seconds = time.thread_time() - started
    _note_compilation(kernel, seconds, cc)
    return code


def _note_compilation(kernel: Kernel, seconds: float, cc: tuple[int, int] | None) -> None:
    count_compilation(kernel.name, seconds)
    if cc is None:
        worthwhile.learn(kernel, seconds)


def _count(kernel: Kernel, answer: dict[str, Any], cc: tuple[int, int] | None) -> None:
    """Count a kernel from the service, and learn from how long it took."""
    first, seconds = bool(answer.get("first")), float(answer.get("seconds", 0.0))
    with updating() as counters:
        counters.kernels_waited += not first
        if not awaited():
            counters.compile_seconds += seconds
    if first:
        _note_compilation(kernel, seconds, cc)


def starting() -> float:
    """Return the seconds of processor time that are spent before the first kernel is begun."""
    if not is_used():
        return 0.0 if "numba" in sys.modules else STARTING / 2
    if _client.connected:
        return 0.0
    # Where nothing has been compiled, no service has been needed. There may be no way to a socket.
    there = not kernelfiles.is_empty() and os.path.exists(place().socket)
    return 0.0 if there else STARTING


def is_used() -> bool:
    """Return whether the configuration says that the service compiles.

    Raises
    ------
    ChoiceError
        If it has something else than one of the two.
    """
    return config.word("fusion.compiler") == "service"


def _is_data(kernel: Kernel) -> bool:
    """Return whether a kernel is nothing but its definition: no user's code is in it."""
    if kernel.edition is not None or kernel.original is not None:
        return False
    operations = {s.operation for s in kernel.statements} | {o.combine for o in kernel.outputs}
    return not operations & DEFINED.keys()


_complained: set[str] = set()


def _complain(reason: str) -> None:
    if reason not in _complained:
        _complained.add(reason)
        logger.warning("kernels are compiled in this process, not by a service: %s", reason)


def urge(name: str, gain: float) -> None:
    """Let the service compile a kernel sooner that it has been asked for.

    Parameters
    ----------
    name
        The kernel's.
    gain
        Seconds that are expected to be saved besides what was said.
    """
    _client.urge(name, gain)


def status() -> dict[str, Any] | None:
    """Return what the service is doing; None if none answers. None is started."""
    return _answer("status")


def queued_names() -> list[str]:
    """Return the names of the kernels that the service has still to make; none is started."""
    answer = status() or {"compilations": []}
    return [str(compilation["name"]) for compilation in answer["compilations"]]


def made() -> dict[str, float]:
    """Return the seconds of processor time that the service spent on each kernel, by its name.

    Empty if there is no service; none is started. `gpusched.statistics` has what this process has
    asked for, and knows which of it was used.
    """
    answer = _answer("made") or {"made": {}}
    return {str(name): float(seconds) for name, seconds in answer["made"].items()}


def _answer(op: str) -> dict[str, Any] | None:
    try:
        connection = Connection(connected(place(), start=False))
    except UnavailableError:
        return None
    try:
        return connection.ask({"op": op}, patience=ANSWER)[0]
    except (ServiceLostError, SilentServiceError):
        return None
    finally:
        connection.close()


def stop() -> None:
    """End the service, if there is one; what it was compiling is given up.

    Raises
    ------
    SilentServiceError
        If it does not end.
    """
    try:
        connection = Connection(connected(place(), start=False))
    except UnavailableError:
        return
    connection.tell({"op": "stop"})
    ended = connection.wait_until_lost(PATIENCE)
    connection.close()
    _client.close()
    if not ended:
        raise SilentServiceError(f"the compile service has not ended in {PATIENCE:g} s")
