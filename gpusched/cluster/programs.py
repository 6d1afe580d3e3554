"""Programs on the scheduler: tasks name them, and each worker is given each of them once."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from gpusched.adapters.tasks import Task, execute_subgraph
from gpusched.graph.programs.program_tokens import EMBED, OPERATION, refer
from gpusched.graph.running.decisions import ByToken

if TYPE_CHECKING:
    from gpusched.graph.programs.program import Program
    from gpusched.graph.running.decisions import Remaining


class Served:
    """Stands for a program in the scheduler's tasks; pickles to a name that workers ask with."""

    def __init__(self, program: Program, token: str, payload: bytes) -> None:
        self.program = program
        self.token, self.payload = token, payload
        """As they were when the graph came: functions of the user's may change later."""
        self.given: Counter[str] = Counter()
        """Payloads sent, by worker's address."""
        self.embedded = False
        """Whether it pickles whole, since a worker could not get the rest."""

    @property
    def __name__(self) -> str:
        return self.program.__name__

    @property
    def remaining(self) -> Remaining:
        """What the program knows of its tasks; asked by workers in this process."""
        return self.program.remaining

    def __repr__(self) -> str:
        return repr(self.program)

    def __call__(self, *inputs: Any) -> Any:
        """Run the program on the inputs of a task."""
        return self.program(*inputs)

    def __reduce__(self) -> Any:
        if self.embedded:
            from gpusched.graph.programs.program import restore

            return restore, (self.token, self.payload, self.remaining)
        return refer, (self.token, *self.remaining.told())

    def __dask_tokenize__(self) -> Any:
        return self.program.__dask_tokenize__()


class Programs(SchedulerPlugin):
    """Gives each worker each program once, rather than with each task.

    `gpusched.cluster.scheduler` installs it. Another scheduler of distributed's sends programs
    whole, until a client registers this.

    Notes
    -----
    Used on the event loop only. A program is kept for as long as a task of the scheduler's has it
    (or distributed's record of the last messages it sent), so that a worker always finds what a
    task that is still wanted names.
    """

    name = "gpusched-programs"

    def __init__(self) -> None:
        self._served: weakref.WeakValueDictionary[str, Served] | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start to answer a scheduler's workers; called as the plugin is registered."""
        self.install(scheduler)

    def install(self, scheduler: Scheduler) -> None:
        """Start to answer a scheduler's workers."""
        # Made here, because it cannot be pickled.
        self._served = weakref.WeakValueDictionary()
        scheduler.handlers[OPERATION] = self.give
        scheduler.stream_handlers[EMBED] = self.embed

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Key], **kwargs: Any) -> None:
        """Replace programs by names, before the first task of a graph is sent."""
        found: dict[int, tuple[Program, Served]] = {}
        for key in tasks:
            self._rename(scheduler.tasks[key].run_spec, found)

    def _rename(self, spec: Any, found: dict[int, tuple[Program, Served]]) -> None:
        if type(spec) is not Task:
            return
        program: Any = spec.func
        by_token = isinstance(program, ByToken)
        if by_token:
            # Once for each program, as it may be pickled to know its token; its id stays its own.
            if id(program) not in found:
                found[id(program)] = program, self._serve(program)
            spec.func = found[id(program)][1]
        elif program is execute_subgraph:
            # A graph that was optimised twice: dask has fused programs with other tasks.
            for inner in spec.args[0].values():
                self._rename(inner, found)

    def _serve(self, program: Program) -> Served:
        assert self._served is not None
        token, payload = program.payload()
        served = self._served.get(token)
        if served is None:
            served = self._served[token] = Served(program, token, payload)
        served.program.remaining.learn(program.remaining)
        return served

    def give(self, token: str, worker: str) -> bytes | None:
        """Return a program's payload; None for one that no task has any more."""
        assert self._served is not None
        served = self._served.get(token)
        if served is None:
            return None
        served.given[worker] += 1
        return served.payload

    def embed(self, token: str, worker: str) -> None:
        """Send a program whole from now on, because `worker` could not get it."""
        assert self._served is not None
        served = self._served.get(token)
        if served is not None:
            served.embedded = True
