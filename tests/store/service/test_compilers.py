"""The compile service's workers, without the service."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from gpusched.store.service import compilers, protocol
from gpusched.store.service.compilations import Compilation, Compilations
from gpusched.store.service.compilers import Compilers, Work
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.processes,
    # Of Python 3.12, where a test's process has threads; the service's has none.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


class Workers:
    """Workers that compile nothing: the first one never answers."""

    def __init__(self, folder: Path) -> None:
        self.first = folder / "first"
        self.queue = Compilations()
        self.answers: list[dict[str, Any]] = []
        self.answered = asyncio.Event()
        self.prepared_here = 0
        self.compilers = Compilers(self.queue, self._made, self._prepare)

    def _made(self, compilation: Compilation, answer: dict[str, Any], code: bytes) -> None:
        self.queue.finish(compilation)
        self.answers.append(answer)
        self.answered.set()

    def _prepare(self) -> Work:
        self.prepared_here += 1
        return self._work

    def _work(self, requests: BinaryIO, answers: BinaryIO) -> None:
        while (frame := protocol.read(requests)) is not None:
            if not self.first.exists():
                self.first.touch()
                continue
            answers.write(protocol.packed({"key": frame[0]["key"]}))
            answers.flush()

    def ask(self, key: str, asking: tuple[int, int] | None = (0, 0), **more: Any) -> None:
        self.queue.add(asking, {"key": key, "name": key, "gain": 1.0, **more})
        self.compilers.call()

    async def done(self) -> None:
        await self.answered.wait()
        self.answered.clear()
        while self.compilers._doing:
            await asyncio.sleep(0.001)

    async def begun(self) -> None:
        while not self.first.exists():
            await asyncio.sleep(0.001)


async def urged(folder: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Have a kernel begun in idle time, and again as it is urgent; return answers and workers."""
    found = Workers(folder)
    found.ask("a", urgent=False)
    await found.begun()
    (idle,) = found.compilers._workers.values()
    found.ask("a", urgent=True)
    await found.done()
    ids = [idle.pid, *(worker.pid for worker in found.compilers._workers.values())]
    found.compilers.close()
    return found.answers, ids


def test_what_was_begun_in_idle_time_is_given_up_once_another_has_done_it(tmp_path: Path) -> None:
    answers, (idle, urgent) = asyncio.run(asyncio.wait_for(urged(tmp_path), PATIENCE))
    assert answers == [{"key": "a"}] and idle != urgent
    assert not psutil.pid_exists(idle) and not psutil.pid_exists(urgent)


def die(requests: BinaryIO, answers: BinaryIO) -> None:
    """Begin what is asked for, and end as a compiler does that breaks."""
    protocol.read(requests)
    os.kill(os.getpid(), signal.SIGKILL)


async def answer_of_the_dead() -> dict[str, Any]:
    queue = Compilations()
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def made(compilation: Compilation, found: dict[str, Any], code: bytes) -> None:
        queue.finish(compilation)
        answer.set_result(found)

    dying = Compilers(queue, made, lambda: die)
    queue.add((0, 0), {"key": "a", "awaited": True})
    dying.call()
    try:
        return await answer
    finally:
        dying.close()


def test_a_kernel_whose_compilers_die_is_said_to_be_so() -> None:
    found = asyncio.run(asyncio.wait_for(answer_of_the_dead(), PATIENCE))
    assert found["died"] and "status -9" in found["error"]


async def asked_after_the_idle_died(folder: Path, reaped: bool) -> tuple[int, list[int]]:
    """End a worker that has nothing to do, ask again; return its id, and how many died of each."""
    found = Workers(folder)
    found.first.touch()
    deaths = []

    def made(compilation: Compilation, answer: dict[str, Any], code: bytes) -> None:
        deaths.append(compilation.deaths)
        plain(compilation, answer, code)

    plain, found.compilers._made = found.compilers._made, made
    found.ask("a", urgent=True)
    await found.done()
    while found.compilers._doing:
        await asyncio.sleep(0)
    (worker,) = found.compilers._workers.values()
    os.kill(worker.pid, signal.SIGKILL)
    while not worker.has_ended:
        await asyncio.sleep(0.001)
    if reaped:
        found.compilers.reap()
        assert not psutil.pid_exists(worker.pid)
    found.ask("b", urgent=True)
    await found.done()
    found.compilers.close()
    return worker.pid, deaths


@pytest.mark.parametrize("reaped", [False, True])
def test_who_dies_with_nothing_to_do_dies_of_no_kernel(tmp_path: Path, reaped: bool) -> None:
    run = asked_after_the_idle_died(tmp_path, reaped)
    ended, deaths = asyncio.run(asyncio.wait_for(run, PATIENCE))
    assert deaths == [0, 0]
    assert not psutil.pid_exists(ended)


async def prepared_after_each(folder: Path) -> list[int]:
    """Return how often this process has imported a compiler, after an idle request and others."""
    found = Workers(folder)
    found.first.touch()
    counts = []
    for key, urgent in (("a", False), ("b", True), ("c", True), ("d", False)):
        found.ask(key, urgent=urgent)
        await found.done()
        counts.append(found.prepared_here)
    found.compilers.close()
    return counts


def test_the_compiler_is_not_imported_beside_tasks_for_what_can_wait(tmp_path: Path) -> None:
    counts = asyncio.run(asyncio.wait_for(prepared_after_each(tmp_path), PATIENCE))
    assert counts == [0, 1, 1, 1]


async def answers_without_a_compiler(folder: Path, error: Exception) -> list[dict[str, Any]]:
    """Ask for a kernel in idle time, and for another one that a task waits for."""
    found = Workers(folder)

    def prepare() -> Work:
        raise error

    found.compilers = Compilers(found.queue, found._made, prepare)
    for key, awaited in (("a", False), ("b", True)):
        found.ask(key, awaited=awaited)
        await found.done()
    found.compilers.close()
    return found.answers


@pytest.mark.parametrize("error", [ImportError, OSError, SystemError])
def test_clients_learn_that_there_is_no_compiler(tmp_path: Path, error: type[Exception]) -> None:
    """Of a broken LLVM or NumPy, numba's import raises any error: none leaves a client waiting."""
    run = answers_without_a_compiler(tmp_path, error("broken"))
    found = asyncio.run(asyncio.wait_for(run, PATIENCE))
    assert found == [{"error": f"the compiler cannot be imported: {error.__name__}: broken"}] * 2


async def urged_as_the_first_dies(folder: Path) -> list[dict[str, Any]]:
    """Have a kernel begun twice, the second time as it is urgent, and end who began first."""
    found = Workers(folder)
    found.ask("a", urgent=False)
    await found.begun()
    (idle,) = found.compilers._workers.values()
    found.ask("a", urgent=True)
    os.kill(idle.pid, signal.SIGKILL)
    await found.done()
    found.compilers.close()
    return found.answers


def test_who_dies_beside_another_at_the_same_kernel_is_not_missed(tmp_path: Path) -> None:
    found = asyncio.run(asyncio.wait_for(urged_as_the_first_dies(tmp_path), PATIENCE))
    assert found == [{"key": "a"}]


async def urged_and_dies(folder: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Have a kernel begun twice, the second time as it is urgent, and end who began it then."""
    found = Workers(folder)
    found.ask("a", urgent=False)
    await found.begun()
    again = folder / "again"

    def work(requests: BinaryIO, answers: BinaryIO) -> None:
        if not again.exists():
            again.touch()
            die(requests, answers)
        found._work(requests, answers)

    found.compilers._prepare = lambda: work  # type: ignore[assignment]
    found.ask("a", urgent=True)
    await found.done()
    nice = [worker.nice for worker in found.compilers._workers.values()]
    found.compilers.close()
    return found.answers, nice


def test_what_is_urgent_is_begun_again_where_only_who_gives_way_is_left(tmp_path: Path) -> None:
    answers, nice = asyncio.run(asyncio.wait_for(urged_and_dies(tmp_path), PATIENCE))
    assert answers == [{"key": "a"}] and nice == [0]


@pytest.mark.parametrize(("looks", "answered"), [(itertools.count(), True), ([3.0, 3.0], False)])
def test_who_is_slow_is_waited_for_and_who_hangs_is_not(
    looks: Iterable[float], answered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has had a second of the processor's time, or none, each time that somebody looks."""
    seen = iter(looks)

    def used(worker: compilers.Worker) -> float:
        (tmp_path / f"look {next(told)}").touch()
        return float(next(seen))

    def work(requests: BinaryIO, answers: BinaryIO) -> None:
        while protocol.read(requests) is not None:
            while not (tmp_path / "look 3").exists():
                os.sched_yield()
            answers.write(protocol.packed({"key": "a"}))
            answers.flush()

    async def answer() -> protocol.Frame:
        worker = await compilers._forked(lambda: work)
        worker.writer.write(protocol.packed({"key": "a"}))
        try:
            return await worker.answer()
        finally:
            worker.end()

    told = itertools.count()
    monkeypatch.setattr(compilers, "LOOK", 0.01)
    monkeypatch.setattr(compilers.Worker, "used", used)
    run = asyncio.wait_for(answer(), PATIENCE)
    if answered:
        assert asyncio.run(run) == ({"key": "a"}, b"")
    else:
        with pytest.raises(TimeoutError, match="0 s of processor time"):
            asyncio.run(run)


def test_no_process_is_left_where_it_cannot_be_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(**given: Any) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(OSError, match="too many"):
        asyncio.run(compilers._forked(lambda: die))
    assert {child.pid for child in psutil.Process().children()} <= before


async def priorities(folder: Path) -> list[int]:
    """Return how nice the worker is that compiles what is left, and what is urgent after that."""
    found = Workers(folder)
    found.first.touch()
    nice: list[int] = []
    for key, asking in (("a", None), ("b", (0, 0))):
        found.ask(key, asking, urgent=asking is not None)
        await found.done()
        nice += [psutil.Process(each.pid).nice() for each in found.compilers._workers.values()]
    found.compilers.close()
    return nice


def test_what_is_urgent_is_not_made_by_who_gives_way(tmp_path: Path) -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    found = asyncio.run(asyncio.wait_for(priorities(tmp_path), PATIENCE))
    assert found == [max(here, compilers.AFTER), here]


def test_its_process_imports_nothing_that_kernels_have_no_use_for() -> None:
    code = ("import sys\nfrom gpusched.backends import compileworker\ncompileworker.prepared()\n"
            "print(*sys.modules)\nimport scipy.linalg")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    found = done.stdout.decode().split()
    assert {"scipy", "coverage"}.isdisjoint(found) and "numba.np.arraymath" in found
