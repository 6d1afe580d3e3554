"""Private names of distributed, each with what it does that no public name does."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask.utils import Dispatch
    from distributed import Client, Scheduler, Worker


def worker_instances() -> list[Worker]:
    """Return the workers of this process, in whatever state.

    distributed has `distributed.get_worker`, which is for tasks only.
    """
    from distributed import Worker

    return list(Worker._instances)


def loop_to_wait_for(worker: Worker) -> asyncio.AbstractEventLoop | None:
    """Return a worker's event loop; None to what the loop itself runs, which cannot wait for it.

    Tornado's class of loops, by which distributed declares it, has no public name for asyncio's.
    """
    loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop  # type: ignore[attr-defined]
    try:
        return None if asyncio.get_running_loop() is loop else loop
    except RuntimeError:
        return loop


def scheduler_instances() -> list[Scheduler]:
    """Return the schedulers of this process that are not closed.

    A scheduler that optimises graphs has no other way to learn that it is one.
    """
    from distributed import Scheduler
    from distributed.core import Status

    # Closed ones stay until they are collected. Other threads may start some meanwhile.
    return [each for each in [*Scheduler._instances] if each.status is not Status.closed]


def total_threads(client: Client) -> int:
    """Return the threads of a client's cluster, as it has last heard of them: every two seconds.

    `distributed.Client.scheduler_info` waits for the scheduler's answer.
    """
    return int(client._scheduler_identity.get("total_threads", 0))


def keep_log(server: Any, logger: logging.Logger) -> None:
    """Have a server keep what a logger is given, as it keeps what its own is, until it is gone."""
    logger.addHandler(server._deque_handler)
    weakref.finalize(server, logger.removeHandler, server._deque_handler)


def replace_preparation(listener: Any, replaced: Callable[[Any], Any]) -> None:
    """Have a listener agree on encryption by ``replaced(what it does so by now)``.

    distributed's own waits without a limit, and has no setting for one.
    """
    listener._prepare_stream = replaced(listener._prepare_stream)


def add_collector(handler: Any, collector: type) -> Any:
    """Add a collector to a page of metrics that was asked for before; None if it was not.

    distributed makes its collectors when the page is asked for first, and none later.
    """
    if not handler._collectors:
        return None
    made = collector(handler._collectors[0].server)
    handler._collectors = (*handler._collectors, made)
    return made


async def wait_for_signals() -> int:
    """Wait for SIGINT or SIGTERM on the event loop, as dask's commands do; return its number."""
    from distributed import _signals

    return await _signals.wait_for_signals()


def worker_ports(
    worker_port: str | None, nanny_port: str | None, workers: int, nanny: bool
) -> list[dict[str, Any]]:
    """Return the ports of each worker and nanny, as ``dask worker`` shares ranges out."""
    from distributed.cli import dask_worker

    found: list[dict[str, Any]] = dask_worker._apportion_ports(
        worker_port, nanny_port, workers, nanny
    )
    return found


def registered(dispatch: Dispatch) -> Iterable[tuple[type, Callable[..., Any]]]:
    """Return what a dispatcher calls for each type that was registered or looked up.

    A copy, because other threads serialize meanwhile.
    """
    return list(dispatch._lookup.items())


def run_on_workers(
    client: Client, function: Callable[..., Any], *args: Any, on_error: str, timeout: Any
) -> dict[str, Any]:
    """Run a function on all workers, and wait for their answers no longer than that.

    `Client.run` waits forever for a worker that does not answer.
    """
    answers: dict[str, Any] = client.sync(
        client._run, function, *args, on_error=on_error, callback_timeout=timeout
    )
    return answers


def in_background(server: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Have a server await a coroutine function beside what it does, until it is closed."""
    server._ongoing_background_tasks.call_soon(function, *args, **kwargs)


def gathering() -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return the method by which clients fetch results."""
    from distributed import Client

    return Client._gather_remote


def replace_gathering(method: Callable[..., Awaitable[dict[str, Any]]]) -> None:
    """Have clients fetch results by another method.

    distributed's raises what a damaged result raises, without asking again; it has no hook there.
    """
    from distributed import Client

    Client._gather_remote = method  # type: ignore[method-assign, assignment]


def replace_own_gathering(client: Client, replaced: Callable[[Any], Any]) -> None:
    """Have one client gather results by ``replaced(what it gathers them by now)``."""
    client._gather = replaced(client._gather)  # type: ignore[method-assign]


def pause_or_resume(memory_manager: Any, worker: Any, memory: int) -> None:
    """Have a worker's memory manager look at an amount of memory now, not at its next turn."""
    memory_manager._maybe_pause_or_unpause(worker, memory)


def terminated_pid(memory_manager: Any) -> int:
    """Return the last process that a nanny's memory manager has ended; -1 for none."""
    found: int = memory_manager._last_terminated_pid
    return found


def gathered_keys(client: Client) -> Any:
    """Return the keys that a client collects to fetch them together."""
    return client._gather_keys
