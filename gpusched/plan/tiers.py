"""Which tier a plan runs in: its kernels, or the calls that it was recorded from.

A plan whose kernels are not compiled yet runs as those calls, so that no task waits for a compiler,
and as its kernels from the chunk on for which they are ready. What only kernels can do waits for
them: scalar functions that a user has written, and users' versions of kernels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from gpusched import config, events
from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import DEFINED
from gpusched.store import background, unfused, worthwhile
from gpusched.store.handles import Handle
from gpusched.store.service import client as service
from gpusched.store.statistics import updating

if TYPE_CHECKING:
    from gpusched.backends.devices import Device, Marks
    from gpusched.plan.plan import Plan

BACKGROUND, WAIT, OFF = "background", "wait", "off"
"""What a process does about kernels that are not compiled."""
ANY, FUSED, UNFUSED = "any", "fused", "unfused"
"""What a computation says: each chunk as it comes, or all of them in one tier."""


def has_unfused(kernel: Kernel) -> bool:
    """Return whether others compute what a kernel does: NumPy, or numba's ufuncs."""
    names = {each.operation for each in kernel.statements} | {o.combine for o in kernel.outputs}
    functions = [DEFINED[name].function for name in DEFINED.keys() & names]
    return not (kernel.edition or any(f is not None and f.only_here for f in functions))


def missing(kernels: Iterable[Handle]) -> tuple[Handle, ...]:
    """Return the kernels that are not ready; none if they have to be waited for."""
    found = tuple(kernels)
    if not all(has_unfused(each.kernel) for each in found):
        return ()
    return tuple(each for each in found if not each.look())


def is_ready(plan: Plan) -> bool:
    """Return whether a plan's kernels are compiled by now."""
    plan.ready = plan.ready or not missing(plan.kernels)
    return plan.ready


def wait(kernels: Iterable[Handle]) -> None:
    """Compile what is not compiled, as far as that can be done.

    A service is asked for all at once, since it compiles several at a time. What can be done
    without keeps the compiler's error; that of other kernels is raised.
    """
    waiting = [kernel for kernel in kernels if not kernel.look()]
    if len(waiting) < 2 or not service.is_used():
        for kernel in waiting:
            _compile(kernel)
        return
    threads = ThreadPoolExecutor(min(len(waiting), background.THREADS), "gpusched-wait")
    try:
        for done in [threads.submit(_compile, kernel) for kernel in waiting]:
            done.result()
    finally:
        # Whoever is interrupted does not wait for what is being compiled.
        threads.shutdown(wait=False, cancel_futures=True)


def _compile(kernel: Handle) -> None:
    try:
        kernel.wait()
    except (MemoryError, OSError, config.ChoiceError):
        raise  # It says nothing about the kernel.
    except Exception as error:
        if not has_unfused(kernel.kernel):
            raise
        kernel.error = error


def failure(kernels: Iterable[Handle]) -> Exception | None:
    """Return why something could not be compiled, if so."""
    return next((kernel.error for kernel in kernels if kernel.error is not None), None)


def spent(kernels: Sequence[Handle], seconds: float, left: int, graph: str = "",
          at_once: int | None = None) -> None:  # fmt: skip
    """Note a run without kernels, and have them compiled if that pays.

    Parameters
    ----------
    kernels
        Those that were not ready.
    seconds
        Of processor time that the run took; of a device, how long.
    left
        How many such runs are known to come.
    graph
        What it was run for, if that is known.
    at_once
        How many such runs go on at once; as many as there are cores if that is not given.
    """
    waiting = [each for each in kernels if not each.ready and each.error is None]
    # First chunks take up to twice as long as later ones, as their memory is new, and more on a
    # busy machine: what is left is expected to take as long as the shortest so far, of two.
    expected = min([seconds, *(handle.least * len(waiting) for handle in waiting)])
    for handle in waiting:
        handle.count(seconds / len(waiting), graph)
    if config.word("fusion.compile") != BACKGROUND or all(handle.urgent for handle in waiting):
        return
    times = unfused.here()
    noted = any([times.add(handle.name, seconds / len(waiting)) for handle in waiting])
    # Files are looked at only where it matters: most short runs are worth nothing in any case.
    starting = service.starting() if noted else 0.0
    gain = worthwhile.gain(waiting, expected, left, starting, at_once)
    if gain > 0 and not noted:
        gain = worthwhile.gain(waiting, expected, left, service.starting(), at_once)
    if gain > 0:
        background.request(waiting, gain)
    elif noted and not all(handle.requested for handle in waiting):
        background.consider(waiting, starting, graph)


class Unfused:
    """Counts and times one run of a program without its kernels.

    Parameters
    ----------
    kernels
        Those of its plan, some of which are missing.
    left
        How many such runs are known to come.
    graph
        What it is run for, if that is known.
    device
        Where the run's arrays are. On the host, processor time is what counts, as it does of
        compilations: tasks that other programs delay are not worth more.
    launches
        The kernels' names, as often as the plan launches each; each once if that is not known.

    Notes
    -----
    Nobody waits for a device, which would have nothing to do meanwhile: what a run has taken of it
    is noted when a later one ends.
    """

    def __init__(self, kernels: Sequence[Handle], left: int, graph: str, device: Device,
                 launches: Sequence[str] = ()) -> None:  # fmt: skip
        self._kernels = kernels
        self._launches = launches or [kernel.name for kernel in kernels]
        self._left = left
        self._graph = graph
        self._device = device
        self.kept = True
        """Whether the plan is kept, so that it has use of the kernels."""

    def __enter__(self) -> Unfused:
        # In a profile, where times are the host's, runs are waited for.
        marks = None if events.active else self._device.marks
        self._marks = None if marks is None else (marks, marks.make())
        unfused.running.begin()
        self._started, self._used = perf_counter(), thread_time()
        return self

    def __exit__(self, *exception: object) -> None:
        unfused.running.end()
        if not self.kept:
            return
        with updating() as counters:
            counters.tasks += 1
            counters.unfused_tasks += 1
            counters.unfused_launches.update(self._launches)
        if self._marks is not None:
            marks, begin = self._marks
            _issued.append((self, marks, begin, marks.make()))
            _note_passed()
            return
        if not self._device.can.host_memory:
            self._device.synchronize()
        seconds = perf_counter() - self._started
        if events.active:
            missing = (kernel.name for kernel in self._kernels if not kernel.ready)
            # They may have become ready since somebody looked.
            events.record_since("unfused", next(missing, self._launches[0]), self._started)
        self.note(seconds)

    def note(self, seconds: float) -> None:
        """Note how long the run has taken, and have kernels compiled if that pays."""
        on_host = self._device.can.host_memory
        used = thread_time() - self._used if on_host else seconds
        with updating() as counters:
            counters.unfused_seconds += seconds
            for name in self._launches:
                counters.unfused_microseconds[name] += round(seconds * 1e6 / len(self._launches))
        spent(self._kernels, used, self._left, self._graph, None if on_host else 1)


_issued: deque[tuple[Unfused, Marks, Any, Any]] = deque()
"""Runs with their first and last marks, which devices may not have passed."""


def _note_passed() -> None:
    """Note the runs on devices that have ended, in the order in which they have been left to them.

    Notes
    -----
    Thread-safe: each run is taken out by one thread.
    """
    while _issued:
        try:
            run, marks, begin, end = taken = _issued.popleft()
        except IndexError:
            return  # Another thread has taken the last one.
        if not marks.passed(end):
            _issued.appendleft(taken)
            return
        run.note(marks.seconds(begin, end))
