"""Counters: what ran fused in this process, what it moved, and graph breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field, fields

from gpusched import forks
from gpusched.breaks import Reason
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import EDITED


@dataclass(frozen=True)
class Committed:
    """Bytes of a worker's memory that are taken, or that running tasks may still take.

    Examples
    --------
    >>> from gpusched.store.statistics import Committed
    >>> (Committed(limit=100, held=40) + Committed(limit=100, held=30, reserved=60)).total
    90
    """

    limit: int = 0
    """Within which tasks are started; 0 where none asked for memory."""
    held: int = 0
    """Of results."""
    in_flight: int = 0
    """Of results that are being received."""
    reserved: int = 0
    """That running tasks may still take."""
    unmanaged: int = 0
    """That the process takes for anything else."""

    @property
    def total(self) -> int:
        """The bytes of all four."""
        return self.held + self.in_flight + self.reserved + self.unmanaged

    def __bool__(self) -> bool:
        return self.total > 0

    def __add__(self, other: Committed) -> Committed:
        """Return the one that leaves the smaller share of its limit."""
        fuller = other.total * self.limit > self.total * other.limit or not self.limit
        return other if fuller else self

    def __sub__(self, earlier: Committed) -> Committed:
        """Return what it has been since then, of the same worker; nothing if no less was left."""
        return self if self.total > earlier.total else Committed()


@dataclass
class Statistics:
    """Counts of one process, or of several merged.

    Examples
    --------
    >>> first, second = Statistics(tasks=2), Statistics(tasks=3)
    >>> first.merge(second).tasks
    5
    """

    tasks: int = 0
    """Chunk tasks that held at least one function gpusched knows."""
    fused_tasks: int = 0
    """Chunk tasks that launched at least one fused kernel."""
    unfused_tasks: int = 0
    """Chunk tasks that ran as the calls they were recorded from, as kernels were not compiled."""
    unfused_seconds: float = 0.0
    """Seconds spent in those, summed over threads."""
    unfused_microseconds: Counter[str] = field(default_factory=Counter)
    """The same by kernel that would have been launched, in equal shares where there are several."""
    unfused_launches: Counter[str] = field(default_factory=Counter)
    """Launches that those tasks did without, by kernel."""
    kernels_requested: Counter[str] = field(default_factory=Counter)
    """Kernels that were asked for while tasks went on without them, by name."""
    launches: int = 0
    """Kernel launches."""
    recorded: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Chunk tasks that were recorded because no plan for them was known, by (operation, what was
    new about their chunks)."""
    kernels: Counter[str] = field(default_factory=Counter)
    """Launches by kernel name; its length is the number of distinct kernels used."""
    compilations: int = 0
    """Kernels compiled in this process, because nobody else had."""
    compile_seconds: float = 0.0
    """Seconds spent in compilation, in loading what was compiled, and in waiting for it."""
    compilation_microseconds: Counter[str] = field(default_factory=Counter)
    """Processor time of these compilations, wherever they were made, by kernel."""
    kernels_loaded: int = 0
    """Kernels whose machine code was on disk."""
    kernels_received: int = 0
    """Kernels whose machine code another worker had made, and the scheduler gave."""
    kernels_waited: int = 0
    """Kernels that another process of this machine was making when they were wanted."""
    kernels_unshared: Counter[str] = field(default_factory=Counter)
    """Times a kernel may have been compiled once more than need be, by reason."""
    kernel_seconds: float = 0.0
    """Seconds spent inside kernels, summed over threads."""
    bytes_read: int = 0
    """Bytes of chunk data that kernels read."""
    bytes_written: int = 0
    """Bytes of chunk data that kernels wrote."""
    buffers_made: int = 0
    """Buffers for results of chunk kernels that were taken from the system."""
    buffers_reused: int = 0
    """Results of chunk kernels that were written to a buffer that an earlier one had."""
    programs_received: int = 0
    """Programs that this process's workers asked the scheduler for."""
    programs_missing: int = 0
    """Times the scheduler did not give one, and the task came again with its program in it."""
    tunings_damaged: int = 0
    """Times that the file of what was tuned was damaged, and not heeded."""
    repeats: int = 0
    """Chunk tasks whose calls NumPy repeated, to report floating-point errors."""
    device_tasks: int = 0
    """Chunk tasks of NumPy programs that were computed on a worker's GPU, in whole or in part."""
    host_tasks: int = 0
    """Those on workers with a GPU that were computed on the host."""
    host_reasons: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """Times that calls of such tasks ran on the host, by (operation, reason)."""
    bytes_to_device: int = 0
    """Bytes of chunks that were copied to a GPU for tasks that know nothing of it."""
    bytes_to_host: int = 0
    """Bytes of such chunks that were copied back, for functions that need NumPy's arrays."""
    bytes_between_devices: int = 0
    """Bytes of GPU memory that another worker's GPU has copied from this one's, for its tasks."""
    bytes_through_host: int = 0
    """Bytes of GPU memory that were sent through host memory, to other workers and clients."""
    spilled_bytes: int = 0
    """Bytes of results that were written to disk, for want of memory."""
    unspilled_bytes: int = 0
    """Bytes of them that were read back."""
    memory_waits: int = 0
    """Tasks that did not start at once, for want of memory."""
    memory_wait_seconds: float = 0.0
    """Seconds that they waited, summed over tasks."""
    memory_pieces: int = 0
    """Tasks started on parts of their chunks, as they did not fit as a whole."""
    memory_refusals: int = 0
    """Tasks that were refused, as they cannot fit."""
    memory_reasons: Counter[str] = field(default_factory=Counter)
    """Tasks that did not start at once, by what they waited for last."""
    memory_fullest: Committed = field(default_factory=Committed)
    """What was taken of a worker's memory when least was left."""
    breaks: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """Calls handed over unfused, by (operation, reason)."""
    apart: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """What stays apart, by (what would have put it together, reason): tasks of a graph (``chain``,
    ``unsplit``, ``reduce``, ``absorb``, ``merge``, ``cut``, ``batch``); in what was recorded,
    arrays that are joined (``join``), kernels (``tile``), and results that are not written past the
    caches (``stream``); in what runs, calls without kernels (``tile``), pieces of chunks that are
    not cut before the calls on them are recorded (``slice``), and chunks that do not fit and are
    not computed in parts (``divide``)."""

    @property
    def recordings(self) -> int:
        """Chunk tasks that were recorded."""
        return self.recorded.total()

    @property
    def edited_launches(self) -> int:
        """Launches of users' versions of kernels, whose names say whose versions they are."""
        return sum(count for name, count in self.kernels.items() if EDITED in name)

    @property
    def unused_compilations(self) -> dict[str, float]:
        """Seconds of processor time spent on kernels that nothing has launched, by kernel.

        Over a cluster, this is a property of the merged counters of all its processes: one may
        compile what another launches.
        """
        compiled = self.compilation_microseconds.items()
        return {name: spent * 1e-6 for name, spent in compiled if name not in self.kernels}

    def merge(self, other: Statistics) -> Statistics:
        """Return the sum of both; neither operand changes."""
        return Statistics(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )


_lock = forks.lock()
_total = Statistics()


class _Updating:
    # A generator would take as long as all that is counted for a task.
    def __enter__(self) -> Statistics:
        _lock.acquire()
        return _total

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _lock.release()


_updating = _Updating()


def updating() -> AbstractContextManager[Statistics]:
    """Give the process's counters for changing, under their lock."""
    return _updating


_launched: ContextVar[str] = ContextVar("gpusched-launched-as", default="")


@contextmanager
def compiling_for(name: str) -> Iterator[None]:
    """Count what this thread has compiled as the kernel that is launched under this name.

    What is compiled may be another one: with the options that are fastest here, or a part of it.
    """
    token = _launched.set(name)
    try:
        yield
    finally:
        _launched.reset(token)


def count_compilation(name: str, seconds: float) -> None:
    """Count a kernel that is compiled because nobody else has.

    Parameters
    ----------
    name
        The kernel's, unless this thread compiles for another one.
    seconds
        Of processor time.
    """
    with updating() as counters:
        counters.compilations += 1
        counters.compilation_microseconds[_launched.get() or name] += round(seconds * 1e6)


def statistics() -> Statistics:
    """Return a copy of this process's counters.

    Returns
    -------
    Statistics
        Counts since the process began, or since `reset_statistics`.

    Examples
    --------
    >>> import gpusched
    >>> gpusched.statistics().launches >= 0
    True
    """
    with _lock:
        return _total.merge(Statistics())


def reset_statistics() -> None:
    """Set this process's counters to zero."""
    with _lock:
        vars(_total).update(vars(Statistics()))
