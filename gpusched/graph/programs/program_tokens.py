"""Programs by name: a task carries a token, and a worker asks the scheduler once for the rest.

distributed sends each task with all that its function pickles to. A scheduler that gpusched has
set up (`gpusched.cluster.programs`) replaces programs by tokens; this is how a worker reads
them. A key of the graph that holds the program would do the same with dask's own means, but each
task would depend on it: one more edge a task to order, place and count, and a program that moves
with the data. A token is a name, which the graph's shape knows nothing of.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from gpusched import forks
from gpusched.adapters.distributed import loop_to_wait_for, worker_instances
from gpusched.graph.running.decisions import UNKNOWN, Remaining
from gpusched.newest import Newest
from gpusched.roles import current_key, current_worker
from gpusched.store.statistics import updating

# Programs need dask.array, which takes longer to import than all else that a scheduler or a worker
# starts with: it is imported with the first of them.
if TYPE_CHECKING:
    from distributed import Worker

    from gpusched.graph.programs import program as programs

OPERATION = "gpusched_program"
"""What a worker asks the scheduler for a payload by."""
EMBED = "gpusched-embed-program"
"""What a worker sends the scheduler when it could not get a payload."""
PATIENCE = 30.0
"""Seconds that a scheduler has to answer."""
TRIES = 4
"""How often a task comes without its program before that is an error: one that was on its way as
another worker gave it back comes without it once more."""
REMEMBERED = 4096
"""Tasks that were given back, of which a process knows how often at most."""


class UnavailableError(LookupError):
    """A program's payload could not be had; the message says why."""


class Deferred:
    """Stands for a program that this process has not seen, until it is called.

    Parameters
    ----------
    token
        The program's: a digest of its payload, so that every scheduler means the same by it.
    remaining
        Its tasks in the graph that was made last.

    Notes
    -----
    Thread-safe; the payload is asked for once, however many tasks wait for it. Asking blocks the
    calling thread.
    """

    def __init__(self, token: str, remaining: Remaining = UNKNOWN) -> None:
        self.token = token
        self.remaining = remaining
        self._program: programs.Program | None = None

    __gpusched_takes_placed__ = True

    @property
    def __name__(self) -> str:
        return self._program.__name__ if self._program else f"fused-{self.token[:8]}"

    def __repr__(self) -> str:
        return f"<Deferred {self.__name__}>"

    def __call__(self, *inputs: Any) -> Any:
        """Find the program, and run it on the inputs of a task."""
        if self._program is None:
            try:
                program = find(self.token)
            except UnavailableError as error:
                _give_back(self.token, error)
                raise
            if _given_back:
                with _counting:
                    _given_back.pop((current_key(), self.token), None)
            program.remaining.learn(self.remaining)
            self._program = program.for_task()
        return self._program(*inputs)

    def __reduce__(self) -> Any:
        try:
            return find(self.token).__reduce__()
        except UnavailableError:
            return refer, (self.token, *self.remaining.told())

    def __dask_tokenize__(self) -> Any:
        return ("gpusched.Program", self.token)


def refer(
    token: str, tasks: int = 0, graph: str = "", extra: int | None = None, whole: bool = True
) -> programs.Program | Deferred:
    """Return the program of that token, or what stands for it until it is called.

    Parameters
    ----------
    token
        The program's.
    tasks, graph, extra, whole
        Of `gpusched.graph.running.decisions.Remaining`, as they take few bytes.
    """
    from gpusched.graph.programs import program as programs

    remaining = Remaining(tasks, graph, extra, whole)
    program = programs.known(token)
    if program is None:
        return Deferred(token, remaining)
    program.remaining.learn(remaining)
    return program.for_task()


_asking: dict[str, threading.Lock] = {}


def find(token: str) -> programs.Program:
    """Return a program, asking a scheduler for it if need be.

    Raises
    ------
    UnavailableError
        If this process has no worker, or its scheduler does not give the program.
    """
    from gpusched.graph.programs import program as programs

    found = programs.known(token)
    if found is not None:
        return found
    with _asking.setdefault(token, forks.lock()):
        try:
            found = programs.known(token)
            if found is None:
                found = programs.shared(token, _ask(token))
                with updating() as counters:
                    counters.programs_received += 1
        finally:
            # Whoever waits has the lock already; whoever comes now finds the program, or asks.
            _asking.pop(token, None)
    return found


def _ask(token: str) -> bytes:
    worker = next(_workers(), None)
    if worker is None:
        raise UnavailableError("no worker is in this process")
    loop = loop_to_wait_for(worker)
    if loop is None:
        raise UnavailableError("the event loop cannot wait for an answer")
    asked = getattr(worker.scheduler, OPERATION)(token=token, worker=worker.address)
    answer = asyncio.run_coroutine_threadsafe(asked, loop)
    try:
        payload = answer.result(PATIENCE)
    except (OSError, RuntimeError, CancelledError) as error:
        answer.cancel()
        raise UnavailableError(f"{worker.scheduler.address} did not answer: {error!r}") from error
    if not isinstance(payload, bytes):
        raise UnavailableError(f"{worker.scheduler.address} does not know the program {token}")
    return payload


def _workers() -> Iterator[Worker]:
    """Yield this process's running workers: the one whose task this thread runs comes first."""
    from distributed.core import Status

    worker = current_worker()
    if worker is not None:
        yield worker
    yield from (worker for worker in worker_instances() if worker.status == Status.running)


_given_back: Newest[tuple[Any, str], int] = Newest(REMEMBERED)
_counting = forks.lock()


def _give_back(token: str, error: UnavailableError) -> None:
    """Send the task back to the scheduler, to come again with its program in it.

    A task that nobody wants any more, whose program the scheduler has forgotten therefore, goes
    the same way, and is forgotten there. One that is wanted and comes without its program again
    and again is an error.
    """
    from distributed import Reschedule

    with updating() as counters:
        counters.programs_missing += 1
    worker = current_worker()
    if worker is None:
        return
    key = current_key()
    if _tries(key, token) >= TRIES:
        raise UnavailableError(
            f"task {key!r} came {TRIES} times without its program {token}: {error}. Compute it "
            "again, from arrays and not from a graph that was kept: this sends the scheduler "
            "the program"
        ) from error
    # On the same stream as the word that the task comes back, and before it.
    worker.loop.add_callback(worker.batched_stream.send, {"op": EMBED, "token": token})
    raise Reschedule


def _tries(key: Any, token: str) -> int:
    """Count a task that came without its program, and return how often it has come in a row."""
    with _counting:
        tries = _given_back.pop((key, token), 0) + 1
        if tries < TRIES:
            _given_back[key, token] = tries
    return tries
