"""A worker that owns one device: distributed's own, with a store, an execution and a pin."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import dask
from dask.typing import Key
from distributed import Client, Worker
from distributed.core import Status
from distributed.worker import WORKER_ANY_RUNNING
from distributed.worker_state_machine import (
    ExecuteFailureEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepFailureEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
    StateMachineEvent,
    TaskState,
)

from gpusched import config
from gpusched.graph import early, hook
from gpusched.logs import follow
from gpusched.orphans import end_with_parent, ignore_interrupts
from gpusched.workers import affinity, exits, version_check
from gpusched.workers.brief_logs import close_quietly
from gpusched.workers.damaged import Damaged
from gpusched.workers.device import Device, open_device
from gpusched.workers.execution import Execution, forget_variables
from gpusched.workers.handshakes import limit_handshakes, limit_requests
from gpusched.workers.kernel_exchange import WorkerKernels
from gpusched.workers.memory.admit import Admission, is_exempt, refusal
from gpusched.workers.memory.ledger import Verdict
from gpusched.workers.memory.monitor import MemoryMonitor
from gpusched.workers.memory.reach import reach
from gpusched.workers.memory.spillfiles import LostValueError, SpillFiles
from gpusched.workers.memory.store import Store
from gpusched.workers.memory.streamed_inputs import lendable, streamed
from gpusched.workers.metrics import Metrics
from gpusched.workers.onstream import Coroutine, OnStream
from gpusched.workers.outgoing import Outgoing, checked
from gpusched.workers.peers import Peers
from gpusched.workers.protection import ThreadPolicies
from gpusched.workers.split_transfers import fetch_parts, parts
from gpusched.workers.task_inputs import host_results, open_task_inputs
from gpusched.workers.unreadable import Unreadable, fetch_each
from gpusched.workers.watched import Watched

logger = logging.getLogger(__name__)

_SHARE_OF_TRANSFERS = 1 / 7
"""Share of the memory that results are planned in which those that are received at once may take;
a larger one is received alone. Of host memory, distributed's own share of the whole is less."""


class DeviceWorker(Worker):
    """A worker that owns one GPU, or a slice of the host.

    Raises `gpusched.workers.pinning.WrongDeviceError` if the process sees another GPU than it
    should.

    Parameters
    ----------
    gpu
        Whether the worker owns a GPU.
    device_memory_limit
        Bytes that results may take on the GPU; 0 for no limit.
    pool, pool_size
        Where GPU memory comes from, as in `gpusched.workers.pool.install`.
    cpus
        The cores that this process is bound to; empty for no binding.
    device_uuid
        The GPU that this process must see, and see alone; empty for none.
    *args, **kwargs
        Those of `distributed.Worker`, but for ``data``.
    """

    data: Store
    admission: Admission | None = None
    """What tasks are started by when memory is short; None where that is off, or has no limit."""

    def __init__(
        self,
        *args: Any,
        gpu: bool = False,
        device_memory_limit: int = 0,
        pool: str = "cupy",
        pool_size: int | None = None,
        cpus: Collection[int] = (),
        device_uuid: str = "",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("data") is not None:
            raise ValueError(
                "a gpusched worker keeps results in a store of its own: leave out data"
            )
        if kwargs.get("nanny"):
            # The nanny's thread that started this process waits for it, so it lives as long.
            end_with_parent()
            ignore_interrupts()
        # Neither can wait for distributed's plugins: the host memory of a GPU's context is to be
        # near the cores, and the store, which asks the device, is made before them.
        if cpus:
            refused = affinity.pin(tuple(cpus))
            if refused:
                logger.warning("not bound to cores %s: %s", sorted(cpus), refused)
        self.device = self._open_device(gpu, device_uuid, device_memory_limit, pool, pool_size)
        close_quietly()
        self._leaving = False
        self._unreadable: set[Key] = set()
        self.outgoing = Outgoing()
        plugins = (ThreadPolicies(), Metrics(), WorkerKernels(), Watched(),
                   *kwargs.pop("plugins", ()))  # fmt: skip
        super().__init__(*args, **{**kwargs, "data": self._open_store, "plugins": plugins})
        follow(self)
        limit = self.memory_manager.memory_limit
        target = dask.config.get("distributed.worker.memory.target")
        if limit and target:
            self.data.host_limit = limit * target
        self.execution = Execution(
            self.device,
            self.data,
            self._leave_from_thread,
            keep_frames=self.nanny is None,
            inputs=open_task_inputs(self.data, self.device),
        )
        self.memory_monitor = MemoryMonitor(self)
        self.memory_monitor.install()
        self.admission = self._open_admission()
        self.damaged = Damaged(self)
        self.peers = Peers(self)

    @property
    def recoveries(self) -> Any:
        """How often memory ran out, and what came of it."""
        return self.execution.recoveries

    async def get_startup_information(self) -> dict[str, Any]:
        """Report to the scheduler this process's versions, besides what distributed reports."""
        told: dict[str, Any] = await super().get_startup_information()
        return {**told, version_check.HANDSHAKE_KEY: version_check.own_versions()}

    async def start_unsafe(self) -> DeviceWorker:
        """Start as distributed does, then import what tasks need while there are none."""
        await super().start_unsafe()
        if hook.is_enabled():
            early.prepare_for_tasks()
        if self.nanny:
            # All that there is in this process stays. To look whether it does would take a tenth of
            # a second, in one of the first tasks.
            gc.freeze()
        if self.admission is not None:
            self.admission.begin()
        return self

    def _open_device(self, *arguments: Any) -> Device:
        return open_device(*arguments)

    def _open_store(self, worker_local_directory: str) -> Store:
        files = SpillFiles(Path(worker_local_directory) / "storage")
        return Store(self.device, files, on_lost=self._lost_from_thread)

    def _open_admission(self) -> Admission | None:
        memory = reach(self) if config.get("memory.admission") else None
        if memory is None:
            return None
        # What compressing takes is in no ledger.
        self.outgoing.largest = memory.margin
        # As distributed bounds them by host memory: a message is received as a whole.
        most = _SHARE_OF_TRANSFERS * memory.limit
        self.state.transfer_incoming_bytes_limit = min(
            self.state.transfer_incoming_bytes_limit, most
        )
        return Admission(self, memory)

    def _get_client(self, *args: Any, **kwargs: Any) -> Client:
        """Return the client of this process, for tasks that ask for one."""
        return host_results(super()._get_client(*args, **kwargs))

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        """Close as distributed does, then remove what was spilled."""
        if self.admission is not None:
            self.admission.stop()
        self.data.stop_spilling()
        closed = await super().close(*args, **kwargs)
        if not self.data.closed:
            try:
                await asyncio.to_thread(self.data.close)
            except RuntimeError:
                if self.data.closed:
                    raise
                # It was not begun: while the interpreter ends, threads are not started any more.
                self.data.close()
        return closed

    async def get_data(self, comm: Any, keys: Collection[Key], who: str | None = None,
                       *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        """Send results to another worker or a client; spilled ones are read off the event loop."""
        if self.admission is None:
            await self._bring_up(keys)
            return await self._get_data(comm, keys, who, *args, **kwargs)
        async with self.admission.send(keys) as leaving:
            await self._bring_up(keys)
            self.admission.loaded(leaving)
            return await self._get_data(comm, keys, who, *args, **kwargs)

    async def _get_data(self, comm: Any, keys: Collection[Key], who: str | None,
                        *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        with self.outgoing.transfer(comm, self.peers.way_to(who)) as sent:
            comm = checked(comm, who)
            try:
                answer = await super().get_data(comm, keys, who, *args, **kwargs)
            except LostValueError:
                # Spilled again and damaged since. It is not here any more, which the receiver sees.
                answer = await super().get_data(comm, keys, who, *args, **kwargs)
            except OSError as error:
                self.peers.forget(who)
                # distributed's log keeps it, and with it the results that were to be sent.
                forget_variables(error)
                raise
            if answer is Status.dont_reply:
                sent.nbytes = self.transfer_outgoing_log[-1]["compressed"] or 0
        return answer

    async def listen(self, *args: Any, **kwargs: Any) -> None:
        """Listen as distributed does, and close connections that do not introduce themselves."""
        await super().listen(*args, **kwargs)
        limit_handshakes(self)

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Show pages as distributed does, and close connections that ask for none."""
        super().start_http_server(*args, **kwargs)
        limit_requests(self.http_server)

    def handle_stimulus(self, *events: StateMachineEvent) -> None:
        """Handle events as distributed does, then let tasks start for which there is memory now."""
        super().handle_stimulus(*events)
        if self.admission is not None:
            self.admission.handled(events)

    async def execute(self, key: Key, *, stimulus_id: str) -> StateMachineEvent:
        """Run a task on the device once it is admitted and its spilled inputs are read."""
        task = self.state.tasks[key]
        spec = self._wrap(task)
        spilled = self._spilled([each.key for each in task.dependencies])
        lent, in_pieces = list[Key](), False
        if self.admission is not None and not is_exempt(task):
            running = await self.admission.enter(task, spilled)
            decision, lent = running.decision, running.lent
            if decision is None:
                return RescheduleEvent(key=key, stimulus_id=stimulus_id)
            if decision.verdict is Verdict.REFUSE:
                return ExecuteFailureEvent.from_exception(
                    refusal(key, decision), key=key, run_id=task.run_id, stimulus_id=stimulus_id
                )
            in_pieces = decision.verdict is Verdict.PIECES
            if not running.slight:
                await self._bring_up(running.inputs)
                self.admission.loaded(running)
        elif spilled:
            await self._bring_up(spilled)
        if self.data.is_overfull():
            # Another result would only wait in memory, until the worker pauses or dies of it.
            await asyncio.wrap_future(self.data.make_room())
        if self._lacks_input(key):
            return RescheduleEvent(key=key, stimulus_id=stimulus_id)
        error = self._unreadable_input(key)
        if error is not None:
            return ExecuteFailureEvent.from_exception(
                error, key=key, run_id=task.run_id, stimulus_id=stimulus_id
            )
        # Whoever wants it again after having cancelled it may have sent another specification: one
        # that does more than copy what it reads, say.
        if spec is not task.run_spec:
            spec = self._wrap(task)
            lent = lent and [each.key for each in lendable(task, self.data)]
        if isinstance(spec, OnStream):
            spec.in_pieces = in_pieces
        token = streamed.set(lent)
        try:
            event = await super().execute(key, stimulus_id=stimulus_id)
        finally:
            streamed.reset(token)
        if isinstance(event, ExecuteFailureEvent) and self._lacks_input(key):
            return RescheduleEvent(key=key, stimulus_id=stimulus_id)
        return event

    async def gather_dep(
        self, worker: str, to_gather: Collection[Key], total_nbytes: int, *, stimulus_id: str
    ) -> StateMachineEvent:
        """Fetch results from another worker; what cannot be read is an error of its tasks.

        What arrives damaged is fetched once more, and then computed again.
        """

        async def fetch(keys: Any) -> StateMachineEvent:
            event = await super(DeviceWorker, self).gather_dep(
                worker, keys, total_nbytes, stimulus_id=stimulus_id
            )
            if isinstance(event, GatherDepFailureEvent):
                # On the connection, the other worker still waits for an answer to what it has sent.
                for comm in list(self.rpc.available.get(worker, ())):
                    comm.abort()
                await self.peers.withdraw(worker, event)
            return event

        if self.admission is not None and not await self.admission.receive(
            worker, to_gather, total_nbytes
        ):
            return GatherDepBusyEvent(
                worker=worker, total_nbytes=total_nbytes, stimulus_id=stimulus_id
            )
        await self.peers.introduce(worker)
        sizes = {key: self.state.tasks[key].get_nbytes() for key in to_gather}
        event = await fetch_parts(fetch, parts(sizes))
        if not isinstance(event, GatherDepFailureEvent) or self.status not in WORKER_ANY_RUNNING:
            return event
        event = await fetch_each(fetch, event, to_gather)
        if isinstance(event, GatherDepSuccessEvent):
            event = await self.damaged.without(event)
            found = event.data.items()
            self._unreadable |= {key for key, value in found if isinstance(value, Unreadable)}
        return event

    def _unreadable_input(self, key: Key) -> BaseException | None:
        """Return why a task's input could not be read, and forget that there is one here."""
        inputs = {dependency.key for dependency in self.state.tasks[key].dependencies}
        for unreadable in inputs & self._unreadable:
            self._unreadable.discard(unreadable)
            value = self.data.get(unreadable)
            if isinstance(value, Unreadable):
                # Others, which may be able to read it, shall not ask here for it.
                freed = FreeKeysEvent(keys=[unreadable], stimulus_id=f"unreadable-{self.id}")
                self.handle_stimulus(freed)
                return value.error
        return None

    def _lacks_input(self, key: Key) -> bool:
        task = self.state.tasks.get(key)
        return task is not None and not all(
            dependency.key in self.data or dependency.key in self.state.actors
            for dependency in task.dependencies
        )

    def _wrap(self, task: TaskState) -> Any:
        """Have a task carried out on the device; return what stands for its specification."""
        spec: Any = task.run_spec
        if spec is not None and not isinstance(spec, OnStream | Coroutine):
            spec = Coroutine(spec) if spec.is_coro else OnStream(spec, task.key, self.execution)
            task.run_spec = spec
        return spec

    def _spilled(self, keys: Collection[Key]) -> list[Key]:
        """Return those results that are not where tasks read them."""
        return [key for key in keys if key in self.data and not self.data.ready(key)]

    async def _bring_up(self, keys: Collection[Key]) -> None:
        spilled = self._spilled(keys)
        if spilled:
            await asyncio.wrap_future(self.data.bring_up(spilled))

    def _lost_from_thread(self, key: Key, reason: str) -> None:
        self.loop.add_callback(self._tell_lost, key, reason)

    def _tell_lost(self, key: Key, reason: str) -> None:
        """Let the scheduler have a lost result computed again."""
        if key in self.data:
            return
        logger.error("lost, to be computed again: %s", reason)
        self.log_event("gpusched-lost", {"key": str(key), "reason": reason})
        self.handle_stimulus(FreeKeysEvent(keys=[key], stimulus_id=f"lost-{self.id}"))

    def _leave_from_thread(self, reason: str) -> None:
        """End this process, and with it the calling thread, which must not report its task."""
        self.loop.add_callback(self._leave, reason)
        threading.Event().wait()

    async def _leave(self, reason: str) -> None:
        if self._leaving:
            return
        self._leaving = True
        logger.critical("leaving, since the device cannot compute any more: %s", reason)
        told = self.scheduler.log_event(
            topic=exits.EVENTS, msg={"worker": self.address, "reason": reason}
        )
        try:
            await asyncio.wait_for(told, timeout=10)
        except (OSError, TimeoutError) as error:
            logger.error("the scheduler could not be reached: %s", error)
        finally:
            os._exit(exits.LOST_CONTEXT)
