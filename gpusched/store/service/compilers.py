"""The compile service's workers: processes that compile one kernel after the other.

Numba compiles with the GIL held, so that threads would wait for each other; and what goes wrong in
LLVM ends the process that it happens in. They are forked off the service, which imports numba
before the first of them: each that did so itself would spend 0.7 s on it. The one that works only
where nothing else does is started without, and imports it where nothing else does.

Workers give way to tasks. What tasks wait for is not put off, nor what is worth more than its
compilation costs them: to do that later costs as much, and all that is computed until then. On two
cores, beside tasks on both, ten calls of `pairwise` took 5.7 s when two kernels got the core that a
process gets, 6.9 s at a niceness of 2 and 11 s at 5, since the kernels came after two calls, three,
and seven.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from gpusched.dataclass import dataclass
from gpusched.store.processors import cores
from gpusched.store.service import protocol
from gpusched.store.service.compilations import Compilation, Compilations

MOST = 8
"""Workers at most, besides the one that works only where nothing else does."""

LONGEST = 600.0
"""Seconds of processor time after which a compilation is given up: the largest kernels took 20."""
LOOK = 120.0
"""Seconds between two looks at that. A worker that has had none of it since the last one hangs."""

AFTER, IDLE = 5, 19
"""How nice workers are: 5 for the next run of what has ended, which leaves a third of one core to
them beside tasks on all of two cores, and 19, which leaves next to nothing."""

_PAUSE = 0.15
"""Seconds between two tries: Linux takes one change of a session's priority in a tenth of one."""
_TRIES = 10

Work = Callable[[BinaryIO, BinaryIO], None]
"""What a worker does: reads requests and writes the answers, until there are none."""
Prepare = Callable[[], Work]
"""Imports what compiles, and returns what a worker does."""
Made = Callable[[Compilation, dict[str, Any], bytes], None]
"""Called with a compilation that is done, the answer, and the code: empty after an error."""


def workers() -> int:
    """Return how many kernels are compiled at once beside tasks: half of the cores' number."""
    return max(1, min(MOST, cores() // 2))


Place = tuple[bool, int]
"""Of a worker: whether it works only where nothing else does, and its number."""


@dataclass
class Worker:
    """A worker's process, and the connection to it."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    nice: int = 0
    """How nice it is to tasks."""

    async def give_way(self, nice: int) -> None:
        """Let tasks go first, with one of `AFTER` and `IDLE`."""
        if nice <= self.nice:
            return
        self.nice = nice
        for _ in range(_TRIES):
            if _lower(self.pid, nice):
                return
            await asyncio.sleep(_PAUSE)

    async def answer(self) -> protocol.Frame:
        """Return the answer to what it has been asked.

        Whoever gives way to tasks may get next to nothing of the processor's time for long: what
        counts is how much it has had.

        Raises
        ------
        OSError
            If it has ended, or takes too long.
        gpusched.store.service.protocol.FrameError
            If it has sent something else.
        """
        receiving = asyncio.ensure_future(protocol.receive(self.reader))
        looks: list[float] = []
        try:
            while not (await asyncio.wait([receiving], timeout=LOOK))[0]:
                looks.append(self.used())
                used = looks[-1] - looks[0]
                if looks[-1] in looks[:-1] or used > LONGEST:
                    raise TimeoutError(f"no answer after {used:.3g} s of processor time")
        finally:
            receiving.cancel()
        if (found := receiving.result()) is None:
            raise ConnectionResetError("no answer")
        return found

    def used(self) -> float:
        """Return the seconds of processor time that it has had."""
        import psutil  # Next to no compilation takes so long that somebody looks.

        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, and all that it has answered has been read."""
        return self.reader.at_eof()

    def end(self) -> int:
        """End the process, if it has not ended; return its status."""
        os.kill(self.pid, signal.SIGKILL)
        self.writer.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _lower(pid: int, nice: int) -> bool:
    """Lower the priority of a process and of its session, which it is the first of.

    Parameters
    ----------
    pid
        Of a process that this one has started in a session of its own.
    nice
        One of `AFTER` and `IDLE`. A process that is as nice already is left so.

    Returns
    -------
    bool
        Whether all is done that can be; if not, it is to be tried again after `_PAUSE`.
    """
    with contextlib.suppress(OSError):  # It has ended.
        if os.getpriority(os.PRIO_PROCESS, pid) < nice:
            os.setpriority(os.PRIO_PROCESS, pid, nice)
    # Where Linux groups processes by session, their own niceness counts within the group only.
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except BlockingIOError:
        return False
    except OSError:
        return True  # It has ended, or there are no such groups here.
    return True


class Compilers:
    """Processes that take compilations, started when there are some.

    Parameters
    ----------
    compilations
        What there is to do.
    made
        Called with each that is done.
    prepare
        Returns what each of them does.

    Notes
    -----
    Belongs to one event loop. A worker ends when its input does, also if the service is killed.
    """

    def __init__(self, compilations: Compilations, made: Made, prepare: Prepare) -> None:
        self._compilations = compilations
        self._made = made
        self._prepare = cache(partial(_prepared, prepare))
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: dict[Place, Worker] = {}
        self._doing: dict[Place, Compilation] = {}

    def call(self) -> None:
        """Have those that have nothing to do look for compilations."""
        for place in [*((False, k) for k in range(workers())), (True, 0)]:
            if place not in self._doing and self._take(place):
                task = asyncio.create_task(self._work(place))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _take(self, place: Place) -> bool:
        compilation = self._compilations.take(idle=place[0])
        if compilation is not None:
            self._doing[place] = compilation
        return compilation is not None

    async def _work(self, place: Place) -> None:
        try:
            await self._do(place, self._doing[place])
            while self._take(place):
                await self._do(place, self._doing[place])
        finally:
            del self._doing[place]

    async def _do(self, place: Place, compilation: Compilation) -> None:
        try:
            answer, code = await self._compiled(place, compilation)
        except (OSError, protocol.FrameError) as error:
            ended = f"{error} with status {self._end(place)}"
            queue = self._compilations
            others = [idle for idle, _ in self._others(place, compilation)]
            if not queue.is_wanted(compilation) or queue.give_back(compilation, others):
                return
            answer, code = {"error": f"the compiler's process ended: {ended}", "died": True}, b""
        if self._compilations.is_wanted(compilation):
            self._made(compilation, answer, code)
            self._stop_others(place, compilation)

    def _stop_others(self, place: Place, compilation: Compilation) -> None:
        """End who has begun the same where nothing else is done: to start another costs less."""
        for other in self._others(place, compilation):
            if other in self._workers:
                os.kill(self._workers[other].pid, signal.SIGKILL)

    def _others(self, place: Place, compilation: Compilation) -> list[Place]:
        """Return who else has begun a compilation."""
        doing = self._doing.items()
        return [other for other, each in doing if each is compilation and other != place]

    async def _compiled(self, place: Place, compilation: Compilation) -> protocol.Frame:
        nice = _nice(place, compilation)
        worker = self._workers.get(place)
        # Only a privileged process could take back how nice one is.
        if worker is not None and (worker.nice > nice or worker.has_ended):
            self._end(place)
            worker = None
        if worker is None:
            if not place[0]:
                self._prepare()  # Once for all that are forked off from now on.
            worker = self._workers[place] = await _forked(self._prepare)
        await worker.give_way(nice)
        worker.writer.write(protocol.packed(compilation.request))
        await worker.writer.drain()
        return await worker.answer()

    def reap(self) -> None:
        """Let go of workers that have been ended while they had nothing to do."""
        for place, worker in list(self._workers.items()):
            if place not in self._doing and worker.has_ended:
                self._end(place)

    def close(self) -> None:
        """End the workers; what they have begun is given up."""
        for task in self._tasks:
            task.cancel()
        for place in list(self._workers):
            self._end(place)

    def _end(self, place: Place) -> int | None:
        """End a worker; return its status, or None if there is none."""
        worker = self._workers.pop(place, None)
        return worker.end() if worker else None


def _nice(place: Place, compilation: Compilation) -> int:
    """Return how nice who makes a kernel has to be to tasks."""
    if place[0]:
        return IDLE
    return 0 if compilation.awaited or compilation.urgent else AFTER


def _prepared(prepare: Prepare) -> Work:
    """Return what workers do; what cannot be imported is their answer, so that nobody waits."""
    try:
        return prepare()
    except Exception as error:  # noqa: BLE001  each client finds out by itself what it lacks
        answer = {"error": f"the compiler cannot be imported: {type(error).__name__}: {error}"}

    def refuse(requests: BinaryIO, answers: BinaryIO) -> None:
        while protocol.read(requests) is not None:
            answers.write(protocol.packed(answer))
            answers.flush()

    return refuse


_READY = b"\0"
"""What a worker sends once it is in a session of its own."""


async def _forked(prepare: Prepare) -> Worker:
    """Start a worker; return when it has a priority of its own."""
    here, there = socket.socketpair()
    pid = os.fork()
    if not pid:
        _in_worker(there, prepare)
    there.close()
    try:
        reader, writer = await asyncio.open_connection(sock=here, limit=protocol.LARGEST)
        await reader.read(len(_READY))
    except BaseException:
        here.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return Worker(pid, reader, writer)


def _in_worker(there: socket.socket, prepare: Prepare) -> NoReturn:
    """Work, in the process that was forked off, in a session that has a priority of its own.

    What is open of the service is closed: its lock, and the connections of others, which end when
    the service does. No object of the service's may be deleted here, since it would close what has
    its number by then.
    """
    try:
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        there.sendall(_READY)
        os.closerange(3, there.fileno())
        os.closerange(there.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        with there.makefile("rb") as requests, there.makefile("wb") as answers:
            prepare()(requests, answers)
        os._exit(0)
    except BaseException:  # noqa: BLE001  the loop of the service must not go on here
        traceback.print_exc()
        os._exit(1)
