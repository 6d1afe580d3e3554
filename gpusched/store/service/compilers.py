"""The compile service's workers: processes that compile one kernel after the other.

Numba compiles with the GIL held, so that threads would wait for each other; and what goes wrong in
LLVM ends the process that it happens in.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any

from gpusched.store.processors import cores
from gpusched.store.service import priority, protocol
from gpusched.store.service.compilations import Compilation, Compilations

MOST = 8
"""Workers at most, besides the one that works only where nothing else does."""

LONGEST = 600.0
"""Seconds after which a compilation is given up: the largest kernels took 20 s."""

Made = Callable[[Compilation, dict[str, Any], bytes], None]
"""Called with a compilation that is done, the answer, and the code: empty after an error."""


def workers() -> int:
    """Return how many kernels are compiled at once beside tasks: half of the cores' number."""
    return max(1, min(MOST, cores() // 2))


class Compilers:
    """Processes that take compilations, started when there are some.

    Parameters
    ----------
    compilations
        What there is to do.
    made
        Called with each that is done.

    Notes
    -----
    Belongs to one event loop. A worker ends when its input does, also if the service is killed.
    """

    def __init__(self, compilations: Compilations, made: Made) -> None:
        self._compilations = compilations
        self._made = made
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[tuple[bool, int], Process] = {}
        self._busy: set[tuple[bool, int]] = set()
        self._lowered: set[int] = set()
        """Ids of the processes that give way to tasks."""

    def call(self) -> None:
        """Have those that have nothing to do look for compilations."""
        for place in [*((False, k) for k in range(workers())), (True, 0)]:
            if place in self._busy:
                continue
            compilation = self._compilations.take(idle=place[0])
            if compilation is not None:
                self._busy.add(place)
                task = asyncio.create_task(self._work(place, compilation))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _work(self, place: tuple[bool, int], compilation: Compilation | None) -> None:
        try:
            while compilation is not None:
                await self._do(place, compilation)
                compilation = self._compilations.take(idle=place[0])
        finally:
            self._busy.discard(place)

    async def _do(self, place: tuple[bool, int], compilation: Compilation) -> None:
        try:
            answer, code = await self._compiled(place, compilation)
        except (OSError, protocol.FrameError) as error:
            await self._end(self._processes.pop(place, None))
            queue = self._compilations
            if not queue.is_wanted(compilation) or queue.give_back(compilation):
                return
            answer, code = {"error": f"the compiler's process ended: {error}"}, b""
        if self._compilations.is_wanted(compilation):
            self._made(compilation, answer, code)

    async def _compiled(self, place: tuple[bool, int], compilation: Compilation) -> protocol.Frame:
        process = self._processes.get(place)
        if process is None:
            process = self._processes[place] = await _started()
        if not compilation.awaited:
            await self._give_way(process, place[0])
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(protocol.packed(compilation.request))
        await process.stdin.drain()
        found = await asyncio.wait_for(protocol.receive(process.stdout), LONGEST)
        if found is None:
            raise ConnectionResetError(f"with status {await process.wait()}")
        return found

    async def _give_way(self, process: Process, idle: bool) -> None:
        """Let tasks go first, from the first kernel on that none waits for; see `priority.lower`.

        Only a privileged process could take that back.
        """
        if process.pid in self._lowered:
            return
        self._lowered.add(process.pid)
        for _ in range(priority.TRIES):
            if priority.lower(process.pid, priority.IDLE if idle else priority.BESIDE):
                return
            await asyncio.sleep(priority.PAUSE)

    async def close(self) -> None:
        """End the workers; what they have begun is given up."""
        for task in self._tasks:
            task.cancel()
        for process in self._processes.values():
            await self._end(process)

    async def _end(self, process: Process | None) -> None:
        if process is None:
            return
        self._lowered.discard(process.pid)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _started() -> Process:
    """Start a worker, in a session of its own: only there has it a priority of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "gpusched.backends.compileworker",
        stdin=PIPE, stdout=PIPE, limit=protocol.LARGEST, start_new_session=True,
    )  # fmt: skip
