"""Starts a worker's tasks when there is memory for them: spills, has them wait, or refuses them.

Results are received, and read from files to be sent, when there is memory for them as well.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.worker_state_machine import (
    ExecuteDoneEvent,
    ExecuteSuccessEvent,
    GatherDepDoneEvent,
    StateMachineEvent,
    TaskState,
)

from gpusched import config
from gpusched.adapters.tasks import Alias
from gpusched.graph.passes.fitting import DECLARED, DoesNotFitError, Needed
from gpusched.graph.running.decisions import UNKNOWN
from gpusched.store.statistics import updating
from gpusched.workers.memory.estimates import Estimates
from gpusched.workers.memory.high_water import Resident
from gpusched.workers.memory.ledger import START, Decision, Ledger, Need, Verdict
from gpusched.workers.memory.reach import Reach
from gpusched.workers.memory.requests import Arriving, Leaving, Request, Running

if TYPE_CHECKING:
    from gpusched.workers.worker import DeviceWorker

_LOOK = 0.1
"""Seconds between two looks at the process's memory while tasks wait."""
_FRESH = 0.02
"""Seconds for which such a look holds where tasks start at once."""
_PATIENCE = 30.0
"""Seconds without any event before reservations are doubted: a task that waits may be one that the
running ones wait for, and what they really take may leave room."""

_NOTHING = Need(0)
_UNSAID = Needed(None)


@dataclass
class Counters:
    """What became of tasks that had no room at first."""

    waited: int = 0
    """Tasks that did not start at once."""
    wait_seconds: float = 0.0
    """How long they waited, together."""
    in_pieces: int = 0
    """Tasks started on parts of their chunks, as they did not fit as a whole."""
    refused: int = 0
    """Tasks that were refused."""


@dataclass(eq=False)
class _Waiting:
    request: Request
    future: asyncio.Future[Decision | None]
    need: Need = _NOTHING
    since: float = field(default_factory=time.monotonic)
    reason: str = "others before it"
    """What it waited for last."""

    @property
    def priority(self) -> Any:
        return self.request.priority


class Admission:
    """Asks the ledger of a worker's memory before each task and transfer, and does what it says.

    Notes
    -----
    Used on the worker's event loop only. Tasks start in the order of their priorities: one that
    waits is passed by none, so that the largest starts as well. Results are received in the order
    of the tasks that read them; those that are to be sent come first. Inputs of running tasks are
    not spilled, since that would free nothing.
    """

    def __init__(self, worker: DeviceWorker, memory: Reach) -> None:
        self._worker = worker
        worker.data.in_use = self._read_meanwhile
        self._memory = memory
        self._strict = memory.is_host and config.get("memory.strict")
        hard = memory.limit if self._strict else memory.hard
        self.ledger = Ledger(memory.limit, hard, memory.resident() or 0)
        self.estimates = Estimates()
        self.counters = Counters()
        self._fullest = self.ledger.fullest
        self._own = self.ledger.own
        """Bytes that the process took for itself when nothing ran here last."""
        self.most_resident = 0
        """The most bytes that the process was seen to take."""
        self.reason = ""
        """What the first task, or transfer, that waits is waiting for."""
        self._queue: list[_Waiting] = []
        """What waits for memory."""
        self._granted: dict[Key, Running | Leaving] = {}
        """What has started, and not ended."""
        self._loading: dict[Key, Running | Leaving] = {}
        """What has inputs that are brought into the memory, or copied there, of those."""
        self._receiving: dict[str, int] = {}
        """Bytes by the worker that sends them."""
        self._sends = itertools.count()
        self._looked = 0.0
        self._moved = time.monotonic()
        """When something started, ended, or was brought into memory or out of it."""
        self._timer: Any = None
        self._about_to_pump = False
        self._stopped = False

    @property
    def waiting(self) -> int:
        """The number of tasks and transfers that wait for memory."""
        return len(self._queue)

    @property
    def waiting_keys(self) -> list[Key]:
        """The keys of the tasks that wait for memory."""
        found = (waiting.request for waiting in self._queue)
        return [each.task.key for each in found if isinstance(each, Running)]

    @property
    def is_stuck(self) -> bool:
        """Whether there are tasks or transfers, and all of them wait for memory."""
        return bool(self._queue) and not self._granted

    def begin(self) -> None:
        """Note what the process takes for itself, now that all is imported that tasks need."""
        self.ledger.own = max(self.ledger.own, self._memory.resident() or 0)
        self._observe()

    async def enter(self, task: TaskState, spilled: Collection[Key]) -> Running:
        """Return when a task may start, is refused, or is wanted by nobody any more.

        Parameters
        ----------
        task
            About to be run; what is reserved for it is given back by `handled`.
        spilled
            Those of its inputs that are not where it reads them.
        """
        running = Running.of(task)
        if not self._queue and not spilled and self._memory.is_host:
            need = self._expected(running)
            if self.ledger.is_slight(need):
                running.slight = not running.first
                running.decision = START
                self._start(running, need)
                return running
        if self._memory.is_host:
            running.borrow(self._worker.data)
        running.copies = self._memory.copies(task)
        running.decision = self._at_once(running) or await self._wait_for(running)
        return running

    def loaded(self, request: Running | Leaving) -> None:
        """Note that a task's inputs, or results to be sent, are in memory."""
        key = request.key
        if key in self._loading:
            absent = self._bytes_absent(request) if request.copies else 0
            self.ledger.loaded(key, absent)
            if not absent:
                del self._loading[key]
            self._note_move()
        if isinstance(request, Running):
            self._measure(request)

    async def receive(self, worker: str, keys: Collection[Key], nbytes: int) -> bool:
        """Return when results may be received; False if nobody wants them any more.

        Parameters
        ----------
        worker
            The address of the worker that has them.
        keys
            Theirs.
        nbytes
            Their bytes, which are in flight until `handled` gets what has become of them.
        """
        tasks = [self._worker.state.tasks[key] for key in keys]
        request = Arriving(worker, tasks, nbytes)
        return (self._at_once(request) or await self._wait_for(request)) is not None

    @asynccontextmanager
    async def send(self, keys: Collection[Key]) -> AsyncIterator[Leaving]:
        """Wait until results may be brought up to be sent; until the end they stay in memory.

        Yields what to give to `loaded` when they are there.
        """
        leaving = Leaving(("gpusched-send", next(self._sends)), list(keys))
        try:
            if (self._at_once(leaving) or await self._wait_for(leaving)) is None:
                self._start(leaving, self._need(leaving))
            yield leaving
        finally:
            self._end(leaving)

    def handled(self, events: Collection[StateMachineEvent]) -> None:
        """Note what has become of tasks; results that they left are in the store by now."""
        for event in events:
            if isinstance(event, ExecuteDoneEvent):
                self._finish(event)
            elif self._receiving and isinstance(event, GatherDepDoneEvent):
                self._note_move()
                self.ledger.in_flight -= self._receiving.pop(event.worker, 0)
        if self._queue:
            self._pump_soon()

    def _pump_soon(self) -> None:
        """Look at those that wait once tasks that have just become ready have asked as well.

        These may come before those that wait, and read what would be spilled for them.
        """
        if not self._about_to_pump:
            self._about_to_pump = True
            self._worker.loop.add_callback(self._pump)

    def stop(self) -> None:
        """Let no task wait any more; idempotent."""
        self._stopped = True
        self._memory.close()
        for waiting in self._queue:
            _answer(waiting, None)

    def metrics(self) -> dict[str, Any]:
        """Return the sizes and counters of now, as plain numbers, and what is waited for."""
        self._observe()
        self.ledger.note_most()  # What starts at once, since it needs next to nothing, does not.
        self._note_fullest()
        ledger, counters = self.ledger, self.counters
        if ledger.idle:
            self._own = max(ledger.own, ledger.unmanaged - self._memory.unused())
        return {
            "limit_bytes": ledger.limit,
            "held_bytes": self._memory.held(),
            "in_flight_bytes": ledger.in_flight,
            "reserved_bytes": ledger.reserved,
            "unmanaged_bytes": ledger.unmanaged,
            "own_bytes": self._own,
            "waiting": self.waiting,
            "reason": self.reason,
            "waited": counters.waited,
            "wait_seconds": round(counters.wait_seconds, 3),
            "in_pieces": counters.in_pieces,
            "refused": counters.refused,
        }

    def _at_once(self, request: Request) -> Decision | None:
        """Grant a request if nothing waits and there is memory for it; return None otherwise."""
        if self._queue:
            return None
        need = self._need(request)
        if not self.ledger.is_slight(need):
            self._observe()
            if self.ledger.decide(need, 0).verdict is not Verdict.START:
                return None
        self._start(request, need)
        return START

    async def _wait_for(self, request: Request) -> Decision | None:
        """Return when a request is granted or refused; None if nobody wants it any more."""
        future = asyncio.get_running_loop().create_future()
        return await self._wait(_Waiting(request, future))

    def _note_move(self) -> None:
        """Note that something has started, ended, or was moved, for those that wait."""
        if self._queue:
            self._moved = time.monotonic()

    def _need(self, request: Request) -> Need:
        if isinstance(request, Running):
            return self._need_of_task(request)
        if isinstance(request, Arriving):
            return Need(request.nbytes)
        return Need(0, self._bytes_absent(request), root=True, outgoing=True)

    def _need_of_task(self, running: Running) -> Need:
        need = self._expected(running)
        absent_bytes = self._bytes_absent(running) if running.inputs else 0
        return need._replace(extra=need.extra + running.largest, absent=absent_bytes)

    def _expected(self, running: Running) -> Need:
        """Return what a task needs whose inputs are all in the memory."""
        task, inputs = running.task, running.nbytes
        if isinstance(running.spec, Alias):
            running.first = False  # Nothing is to be learned from it.
            return _NOTHING  # Another name of a result that is here.
        told = _declared(running)
        learned, least = self.estimates.known(task.prefix, inputs), told.least
        running.first = learned is None
        known = extra = max(learned or 0, told.extra or 0)
        if running.first and (told.extra is None or not told.whole):
            extra = max(known, self.estimates.guess(task.prefix, inputs))
        if self._strict:
            # Nothing is refused on a guess. Of those inputs that are lent, one is there at a time.
            inputs = running.largest + sum(running.sizes[key] for key in running.inputs)
            least = inputs + known
        return Need(extra, 0, least, not task.dependencies)

    def _absent(self, request: Running | Leaving, copies: bool = False) -> list[TaskState]:
        """Return those of a task's inputs, or of results, that are not in the memory yet."""
        tasks, lacks = self._worker.state.tasks, self._memory.lacks
        return [tasks[key] for key in request.inputs if key in tasks and lacks(key, copies)]

    def _bytes_absent(self, request: Running | Leaving) -> int:
        return sum(each.get_nbytes() for each in self._absent(request, request.copies))

    def _observe(self) -> None:
        """Take the present sizes; that of the process only if the last one is not fresh."""
        self.ledger.seceded = {each.key for each in self._worker.state.long_running}
        for key, request in list(self._loading.items()):
            # Looked at before what is held: nothing is missed of what arrives meanwhile.
            self.ledger.loaded(key, self._bytes_absent(request))
        held, now = self._memory.held(), time.monotonic()
        if now - self._looked > _FRESH:
            self._looked = now
            resident, before = self._memory.resident(), held
            held = self._memory.held()
            self.ledger.observe(held, self.ledger.in_flight, resident, before)
        else:
            self.ledger.held = held

    async def _wait(self, waiting: _Waiting) -> Decision | None:
        self._queue.append(waiting)
        try:
            self._pump()
            return await waiting.future
        finally:
            # Whoever was started is not among them any more; a cancelled wait is.
            if waiting in self._queue:
                self._queue.remove(waiting)
            if isinstance(waiting.request, Running):
                self._count_wait(waiting)
            self._arrange()

    def _pump(self) -> None:
        """Start, spill for or refuse tasks that wait, in their order, as far as there is room."""
        self._about_to_pump = False
        for gone in [each for each in self._queue if each.request.gone or self._stopped]:
            self._settle(gone, None)
        while self._queue:
            first = min(self._queue, key=attrgetter("priority"))
            decision = self._decide(first)
            if decision.verdict is Verdict.SPILL:
                first.reason = "spilling"
                self._spill(decision.nbytes, first.request.inputs)
            elif decision.verdict is Verdict.WAIT:
                self.reason = first.reason = decision.reason
                break
            else:
                self._settle(first, decision)
        self._arrange()

    def _decide(self, waiting: _Waiting) -> Decision:
        waiting.need = self._need(waiting.request)
        self._observe()
        decision = self.ledger.decide(waiting.need, 0)
        if decision.verdict in (Verdict.START, Verdict.REFUSE):
            return decision
        # Something has to give way: first what nobody uses.
        self._memory.free_unused()
        self._looked = 0.0
        self._observe()
        patient = time.monotonic() - max(waiting.since, self._moved) < _PATIENCE
        return self.ledger.decide(
            waiting.need, self._memory.spillable(waiting.request.inputs), patient
        )

    def _spill(self, nbytes: int, keep: Collection[Key]) -> None:
        self.ledger.begin_spill()
        self._memory.make_room(nbytes, keep).add_done_callback(self._spilled_from_thread)

    def _spilled_from_thread(self, moved: Future[int]) -> None:
        self._worker.loop.add_callback(self._spilled, moved)

    def _spilled(self, moved: Future[int]) -> None:
        self._end_spill(0 if moved.cancelled() or moved.exception() else moved.result())
        self._pump()

    def _end_spill(self, moved: int) -> None:
        self._note_move()
        self.ledger.end_spill(moved, disk_full=self._worker.data.disk_error is not None)

    def _settle(self, waiting: _Waiting, decision: Decision | None) -> None:
        self._queue.remove(waiting)
        if decision is not None:
            if isinstance(waiting.request, Running):
                self._count(decision.verdict)
            if decision.verdict is not Verdict.REFUSE:
                self._start(waiting.request, waiting.need)
        _answer(waiting, decision)

    def _count_wait(self, waiting: _Waiting) -> None:
        """Count a task that waited, for this worker's metrics and the summary of a run."""
        seconds = time.monotonic() - waiting.since
        self.counters.waited += 1
        self.counters.wait_seconds += seconds
        with updating() as total:
            total.memory_waits += 1
            total.memory_wait_seconds += seconds
            total.memory_reasons[waiting.reason] += 1

    def _count(self, verdict: Verdict) -> None:
        refused, in_pieces = verdict is Verdict.REFUSE, verdict is Verdict.PIECES
        self.counters.refused += refused
        self.counters.in_pieces += in_pieces
        with updating() as total:
            total.memory_refusals += refused
            total.memory_pieces += in_pieces

    def _start(self, request: Request, need: Need) -> None:
        if isinstance(request, Arriving):
            self._receiving[request.worker] = request.nbytes
            self.ledger.receive(request.nbytes)
        else:
            self._granted[request.key] = request
            self.ledger.start(request.key, need)
            if need.absent:
                self._loading[request.key] = request
                if isinstance(request, Running):
                    self._call_readers(request)
        self._note_fullest()
        self._note_move()

    def _read_meanwhile(self) -> list[Key]:
        """Return the inputs of what has started, to any thread: what they are does not change."""
        return [key for request in list(self._granted.values()) for key in request.inputs]

    def _note_fullest(self) -> None:
        """Note for the summary of a run what was committed when that was most."""
        if self.ledger.fullest is not self._fullest:
            self._fullest = self.ledger.fullest
            with updating() as total:
                total.memory_fullest += self._fullest

    def _measure(self, started: Running) -> None:
        """Look at the process where a task begins to run, if it is large, or the first of its kind.

        What functions take for themselves is learned from that: nobody declares it.
        """
        reserved = self.ledger.reserved_for(started.key)
        large = reserved > self.ledger.slight
        if large or started.first:
            found = self._look_at_process()
            if found is not None:
                started.before = started.most = found.now
                others = self.ledger.reserved - reserved + self.ledger.in_flight
                started.beside = others - self.ledger.granted

    def _look_at_process(self) -> Resident | None:
        found = self._memory.look()
        if found is not None:
            self.most_resident = max(self.most_resident, found.most)
            for each in self._granted.values():
                if isinstance(each, Running):
                    each.most = max(each.most, found.most)
        return found

    def _call_readers(self, request: Running) -> None:
        """Have the ready tasks that read what this one has read from disk run next.

        They may be as many as there are pieces of a chunk, far apart in dask's order, and each
        would have the whole chunk read again.
        """
        queue, absent = self._worker.state.ready, self._absent(request)
        for task in {reader for each in absent for reader in each.dependents if reader in queue}:
            if task.priority > request.priority:
                queue.discard(task)
                # After this task, and before those that would have been next.
                task.priority = request.priority + task.priority
                queue.add(task)

    def _finish(self, event: ExecuteDoneEvent) -> None:
        running = self._granted.get(event.key)
        if not isinstance(running, Running):
            return
        if running.before is not None:
            self._look_at_process()
        self._end(running)
        if isinstance(event, ExecuteSuccessEvent):
            taken = event.nbytes or 0
            if running.before is not None:
                taken = max(taken, running.taken(self.ledger.granted))
            self.estimates.learn(running.task.prefix, running.nbytes, taken)

    def _end(self, request: Running | Leaving) -> None:
        """Give back what is reserved for a request, if anything is."""
        self._granted.pop(request.key, None)
        if self._loading:
            self._loading.pop(request.key, None)
        self.ledger.finish(request.key)
        if self._queue:
            self._note_move()
            self._pump_soon()

    def _arrange(self) -> None:
        """See to it that there is another look while tasks wait, and none otherwise."""
        if not self._queue:
            self.reason = ""
        if self._queue and self._timer is None and not self._stopped:
            self._timer = self._worker.loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        self.ledger.try_again()
        self._pump()


def _answer(waiting: _Waiting, decision: Decision | None) -> None:
    if not waiting.future.done():
        waiting.future.set_result(decision)


def is_exempt(task: TaskState) -> bool:
    """Return whether a task takes no memory of its own: a coroutine, or one that makes an actor."""
    spec: Any = task.run_spec
    return spec is None or spec.is_coro or "actor" in (task.annotations or ())


def _declared(running: Running) -> Needed:
    """Return what whoever made the graph says of a task, by its program or by its annotation."""
    remaining = getattr(getattr(running.spec, "func", None), "remaining", UNKNOWN)
    annotations = running.task.annotations
    annotated = annotations.get(DECLARED) if annotations else None
    told = _UNSAID if annotated is None else Needed(*annotated)
    if remaining.extra is None:
        return told
    return told._replace(extra=remaining.extra, whole=remaining.whole)


def refusal(key: Key, decision: Decision) -> DoesNotFitError:
    """Return the error of a task that is refused."""
    return DoesNotFitError(f"task {key!r} does not fit: {decision.reason}")
