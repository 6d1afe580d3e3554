"""Runs nannies and their workers until they finish, or this process is asked to stop."""

from __future__ import annotations

import ast
import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from distributed import Nanny, Worker, nanny
from distributed.comm.core import CommClosedError
from distributed.compatibility import asyncio_run
from distributed.config import get_loop_factory
from distributed.core import Status, collect_causes
from distributed.process import AsyncProcess

from gpusched.adapters.distributed import wait_for_signals
from gpusched.cluster.contact import wait_until_gone
from gpusched.cluster.spawn import workers_without_interrupts
from gpusched.workers.nanny import DeviceNanny

logger = logging.getLogger(__name__)

Node = Nanny | Worker

CLOSING = 10.0
"""Seconds that closing may take before processes are killed."""
_CLEAN = 4.0
"""Seconds of `Nanny.close`, which takes up to 1.8 times as long."""
_STARTING = 2.0
"""Seconds that a worker has to be up before it is closed, rather than killed."""
_REFUSED = "Unexpected response from register: "
"""How distributed's error begins, which goes on with the scheduler's answer as Python writes it."""
_LOOK = 0.5
"""Seconds between two looks at workers whose scheduler has ended."""


class StartError(RuntimeError):
    """A worker could not be started."""


def serve(make: Callable[[], Awaitable[Sequence[Node]]]) -> None:
    """Start workers and return when all of them have finished, or SIGINT or SIGTERM has come.

    The signal closes them, within `CLOSING` seconds; a second one ends this process at once, and
    the workers' processes with it. Raises `StartError` if a worker cannot be started; the others
    are closed then.

    Parameters
    ----------
    make
        Awaited on the event loop; returns nannies, or workers of this process, not yet started.

    Notes
    -----
    For the main thread, because of the signals.
    """
    with _workers_with_signals_blocked():
        asyncio_run(_serve(make), loop_factory=get_loop_factory())


async def _serve(make: Callable[[], Awaitable[Sequence[Node]]]) -> None:
    nodes: list[Node] = []
    running = asyncio.create_task(_run(make, nodes))
    told = asyncio.create_task(wait_for_signals())
    await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
    if told.done():
        _leave_at_next_signal()
        await _close(nodes, f"signal-{told.result()}")
        running.cancel()
        await asyncio.wait([running])
        # What closing made fail is no news.
        _ = running.cancelled() or running.exception()
        return
    told.cancel()
    if running.exception() is not None:
        await _close(nodes, "another-worker-failed")
    running.result()


async def _run(make: Callable[[], Awaitable[Sequence[Node]]], nodes: list[Node]) -> None:
    nodes.extend(await make())
    living = asyncio.create_task(_live(nodes))
    # What closing makes fail is no news.
    living.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        # A death timeout says how long to wait for the scheduler; the nodes see to it themselves.
        if nodes and not nodes[0].death_timeout:
            await _follow_scheduler(nodes, living)
        await living
    except asyncio.CancelledError:
        # Only now: nodes that start must not be cancelled before they are closed.
        living.cancel()
        raise


async def _live(nodes: Sequence[Node]) -> None:
    await asyncio.gather(*map(_start, nodes))
    await asyncio.gather(*map(_finish, nodes))


async def _finish(node: Node) -> None:
    await node.finished()
    if isinstance(node, DeviceNanny) and node.gave_up:
        raise StartError(f"worker {node.name} could not be kept running: {node.gave_up}")


async def _follow_scheduler(nodes: Sequence[Node], living: asyncio.Task[None]) -> None:
    """Return when the nodes have finished; raise if they look for a scheduler that has ended.

    Workers that have joined it leave by themselves. Those that are starting, also once more after
    they died, would look for it forever.
    """
    address = nodes[0].scheduler.address
    gone = asyncio.create_task(wait_until_gone(address, nodes[0].connection_args))
    try:
        await asyncio.wait([gone, living], return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    while not living.done():
        if any(map(_is_joining, nodes)):
            raise StartError(
                f"the scheduler at {address} has ended while a worker was about to join it"
            )
        await asyncio.wait([living], timeout=_LOOK)


def _is_joining(node: Node) -> bool:
    if isinstance(node, Worker):
        return node.status in (Status.init, Status.starting)
    return node.process is not None and node.process.status == Status.starting


async def _start(node: Node) -> None:
    name = "" if node.name is None else f" {node.name}"
    try:
        await node
    except Exception as error:
        raise StartError(f"worker{name} could not be started: {_reason(error, node)}") from error


def _reason(error: BaseException, node: Node) -> str:
    if node.death_timeout and any(isinstance(one, TimeoutError) for one in _history(error)):
        return f"it was not up within its death timeout of {node.death_timeout:g} s"
    if any(isinstance(one, CommClosedError) for one in _history(error)):
        return "the scheduler has closed the connection; its log says why"
    reason = [error, *collect_causes(error)][-1]
    return _refusal(str(reason)) or str(reason) or type(reason).__name__


def _refusal(text: str) -> str:
    """Return the scheduler's own words, if it has refused a worker."""
    if not text.startswith(_REFUSED):
        return ""
    try:
        return str(ast.literal_eval(text.removeprefix(_REFUSED))["message"])
    except (ValueError, SyntaxError, KeyError, TypeError):
        return ""


def _history(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _close(nodes: Sequence[Node], reason: str) -> None:
    closing = [_close_one(node, reason) for node in nodes]
    try:
        async with asyncio.timeout(CLOSING):
            ends = await asyncio.gather(*closing, return_exceptions=True)
    except TimeoutError:
        logger.warning("not closed within %g s: killing what is left", CLOSING)
        await asyncio.gather(*map(_kill, nodes))
        return
    for node, end in zip(nodes, ends, strict=True):
        if isinstance(end, Exception):
            logger.warning("%s was not closed as it should: %r", node, end)


async def _close_one(node: Node, reason: str) -> None:
    if isinstance(node, Worker):
        await node.close(timeout=_CLEAN, executor_wait=False, nanny=False, reason=reason)
        return
    if node.process is not None and node.process.status == Status.starting:
        # A nanny would wait for its worker to be up, which may take for ever.
        try:
            async with asyncio.timeout(_STARTING):
                await node.process.running.wait()
        except TimeoutError:
            await _kill(node)
    scratch = node.worker_dir
    await node.close(timeout=_CLEAN, reason=reason)
    if scratch:
        # A worker that had to be killed has left it; its folder is removed by the nanny.
        Path(f"{scratch}.dirlock").unlink(missing_ok=True)


async def _kill(node: Node) -> None:
    process = node.process.process if isinstance(node, Nanny) and node.process else None
    if process is not None and process.is_alive():
        await process.kill()


def _leave_at_next_signal() -> None:
    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)


class _BlockedSignalsProcess(AsyncProcess):
    """A worker's process, with the terminal's signals blocked.

    Ctrl-C reaches every process of the terminal's group. Only this one must react: it closes the
    workers, which could not do so cleanly while they are interrupted.
    """

    def _start_threads(self) -> Any:
        # One of these threads starts the process, which inherits the thread's mask.
        with workers_without_interrupts():
            return super()._start_threads()


@contextmanager
def _workers_with_signals_blocked() -> Iterator[None]:
    setattr(nanny, "AsyncProcess", _BlockedSignalsProcess)  # noqa: B010
    try:
        yield
    finally:
        setattr(nanny, "AsyncProcess", AsyncProcess)  # noqa: B010
