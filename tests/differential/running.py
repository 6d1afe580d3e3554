"""Runs a case once, by plain dask or by gpusched, and notes all that a user can see of it."""

from __future__ import annotations

import copy
import linecache
import logging
import math
import operator
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from dask.system import CPU_COUNT
from dask.threaded import ContextAwareThreadPoolExecutor

import gpusched
from tests.differential.case import Case
from tests.waiting import wait_for

if TYPE_CHECKING:
    from distributed import Client

EVERY_CHUNK = {
    "gpusched.fusion.compile": "wait",
    "gpusched.fusion.compiler": "process",
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.minimum-operations": 0,
    "gpusched.fusion.strict": True,
    "gpusched.chunks.automatic": False,
}
"""Have single operations on single elements fused, and let the recorder's own errors show."""

MODULE = "differential_case"
"""The module's name while a case runs, by which pickle finds its functions."""

THREADS = 3
"""How many threads compute the same at once."""

PATIENCE = 60
"""Seconds of processor time that a run may take."""


class TooLongError(BaseException):
    """A run took longer than `PATIENCE`; no program can catch it by accident."""


@dataclass(frozen=True)
class Outcome:
    """What one computation gave."""

    value: Any = None
    error: tuple[str, str] | None = None
    """Type and message of the exception that it raised."""
    warned: frozenset[tuple[str, str]] = frozenset()
    """Category and message of each warning."""


@dataclass
class Run:
    """What a case did."""

    outcomes: dict[str, Outcome]
    """By the name of what was computed; a second computation has ", again" in it."""
    state: dict[str, Any]
    """What the program's own variables held afterwards, inputs included."""
    tasks: int = 0
    """Chunk tasks in which gpusched found a function it knows."""
    fused: int = 0
    """Those of them that launched a kernel."""


class Observer:
    """What ``main`` calls with each thing to be computed.

    Parameters
    ----------
    scheduler
        The scheduler that dask computes with.
    scribble
        Whether each result is written into once it has been noted.
    beside
        Whether each result is also computed by `THREADS` threads at once.
    """

    def __init__(self, scheduler: Any, scribble: bool, beside: bool) -> None:
        self.scheduler = scheduler
        self.scribble = scribble
        self.beside = beside
        self.outcomes: dict[str, Outcome] = {}
        self.values: dict[str, Any] = {}

    def __call__(self, name: str, build: Callable[[], Any]) -> None:
        """Compute what `build` returns twice, and note both."""
        for label in (name, f"{name}, again"):
            self.outcomes[label] = self._outcome(build)
        if self.beside:
            with ThreadPoolExecutor(THREADS) as threads:
                values = list(threads.map(lambda _: self._value(build), range(THREADS)))
            for number, outcome in enumerate(values):
                self.outcomes[f"{name}, thread {number}"] = outcome

    def _value(self, build: Callable[[], Any]) -> Outcome:
        """Compute without noting warnings, which threads share."""
        try:
            return Outcome(kept(self._computed(build)))
        except Exception as error:
            return Outcome(error=(type(error).__name__, str(error)))

    def _outcome(self, build: Callable[[], Any]) -> Outcome:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = self._computed(build)
            except Exception as error:
                return Outcome(error=(type(error).__name__, str(error)), warned=_warned(caught))
        outcome = Outcome(kept(value), warned=_warned(caught))
        if self.scribble and isinstance(value, np.ndarray) and value.flags.writeable:
            value.fill(0)
        return outcome

    def _computed(self, build: Callable[[], Any]) -> Any:
        built = build()
        with tasks_ended(self.scheduler) as options:
            if isinstance(built, tuple):
                return dask.compute(*built, scheduler=self.scheduler, **options)
            return built.compute(scheduler=self.scheduler, **options)

    def state(self, name: str, read: Callable[[], Any]) -> None:
        """Note the value of one of the program's own variables."""
        self.values[name] = kept(read())


@contextmanager
def tasks_ended(scheduler: Any) -> Iterator[dict[str, Any]]:
    """Wait at the end for all tasks of a computation: of one that failed, others may still run.

    What these warn of would be noted with the next computation.

    Yields
    ------
    dict
        What dask is given besides the scheduler.
    """
    pool = ContextAwareThreadPoolExecutor(CPU_COUNT) if scheduler == "threads" else None
    ends = True
    try:
        yield {} if pool is None else {"pool": pool}
    except TooLongError:
        ends = False
        raise
    except Exception:
        if hasattr(scheduler, "cluster"):
            wait_for(partial(idle, scheduler))
        raise
    finally:
        if pool is not None:
            pool.shutdown(wait=ends)


def idle(client: Client) -> bool:
    """Return whether no task runs, or is about to, on a cluster of this process."""
    cluster: Any = client.cluster
    states = {task.state for task in list(cluster.scheduler.tasks.values())}
    for worker in cluster.workers.values():
        states.update(task.state for task in list(worker.state.tasks.values()))
    return states <= {"memory", "erred", "error", "released", "forgotten"}


def kept(value: Any) -> Any:
    """Return a copy that later computations cannot change."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return f"no copy of a {type(value).__name__} can be made"


def _warned(caught: list[warnings.WarningMessage]) -> frozenset[tuple[str, str]]:
    found = ((each.category.__name__, str(each.message)) for each in caught)
    # With a function of NumPy's replaced, gpusched itself warns that it fuses nothing.
    return frozenset(each for each in found if not each[1].endswith("nothing is fused"))


class Schedulers:
    """The clusters that cases run on, each started when it is first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clients: dict[bool, Any] = {}

    def __enter__(self) -> Schedulers:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def get(self, name: str, fused: bool) -> Any:
        """Return the scheduler that dask computes with."""
        if name != "cluster":
            return name
        if fused not in self._clients:
            logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
            before = dask.config.get("array_optimize", None)
            started = gpusched.local(2) if fused else _plain_cluster()
            self._clients[fused] = self._stack.enter_context(started)
            dask.config.set({"array_optimize": before})  # `run` says what is fused
        return self._clients[fused]


@contextmanager
def _plain_cluster() -> Iterator[Any]:
    """Run dask's own scheduler and worker in this process."""
    from distributed import Client, LocalCluster

    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    with (
        LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def run(case: Case, fused: bool, schedulers: Schedulers) -> Run:
    """Run a case in this process.

    Parameters
    ----------
    case
        The program.
    fused
        Whether gpusched computes its graphs, rather than plain dask.
    schedulers
        Where it is computed.
    """
    observer = Observer(schedulers.get(case.scheduler, fused), case.scribble, case.beside)
    switch = gpusched.enable if fused else gpusched.disable
    before = gpusched.statistics()
    with (
        dask.config.set({**EVERY_CHUNK, **case.config}),
        switch(),
        _patience(),
        _libraries_put_back(),
        warnings.catch_warnings(),
    ):
        # Those of computations are noted; not those of building a graph.
        warnings.simplefilter("ignore")
        module = _module(case)
        try:
            module.main(observer)
        except Exception as error:
            observer.outcomes["main"] = Outcome(error=(type(error).__name__, str(error)))
        finally:
            del sys.modules[MODULE]
    after = gpusched.statistics()
    state = observer.values | {f"input {k}": v for k, v in module.DATA.items()}
    return Run(observer.outcomes, state, after.tasks - before.tasks,
               after.fused_tasks - before.fused_tasks)  # fmt: skip


def _module(case: Case) -> types.ModuleType:
    """Return the case as a module that functions can be pickled by reference from."""
    filename = f"<{case.kind} {case.seed}>"
    lines = case.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(case.source), None, lines, filename)
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(compile(case.source, filename, "exec"), vars(module))
    return module


@contextmanager
def _libraries_put_back() -> Iterator[None]:
    """Undo what a case has replaced in libraries: one that is being shrunk may not do so."""
    before = {library: dict(vars(library)) for library in (np, operator, math)}
    try:
        yield
    finally:
        for library, names in before.items():
            vars(library).update(names)


@contextmanager
def _patience() -> Iterator[None]:
    """Interrupt what never ends, where signals are to be had; a busy machine is not a reason."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise TooLongError(f"more than {PATIENCE} seconds of processor time")

    before = signal.signal(signal.SIGPROF, interrupt)
    remaining, _ = signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, remaining)
        signal.signal(signal.SIGPROF, before)
