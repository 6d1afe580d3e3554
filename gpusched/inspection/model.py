"""What an explanation holds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from gpusched.inspection.places import Place
from gpusched.inspection.units import shape


@dataclass(frozen=True)
class ChunkArray:
    """A kind of chunk."""

    name: str
    """The user's variable, or the name of dask's layer."""
    dtype: str
    shape: tuple[int, ...]
    """Of the most frequent kind of task."""

    def __str__(self) -> str:
        return f"{self.name} {shape(self.shape)} {self.dtype}"


@dataclass(frozen=True)
class Break:
    """A graph break."""

    operation: str
    """What was called there."""
    reason: str
    code: str
    """Which `gpusched.breaks.GraphBreak` it is."""
    remedy: str
    """What to change; says so where nothing need be."""
    stage: int
    """Number of the stage."""
    layer: str
    """dask's layer."""
    place: Place | None
    """The user's line, where it is known."""
    tasks: int
    """Tasks that break there."""
    counted: bool
    """Whether `gpusched.statistics` counts each when the program runs."""


@dataclass(frozen=True)
class Apart:
    """Tasks, kernels or copies that are not put together."""

    what: str
    """What would have put them together, as in `gpusched.store.statistics.Statistics.apart`."""
    reason: str
    code: str
    """Which `gpusched.breaks.GraphBreak` it is."""
    remedy: str
    """What to change; says so where nothing need be."""
    times: int
    """Tasks, or what a pass has counted instead."""

    def __str__(self) -> str:
        return f"{self.what}: {self.reason} ({self.times:,}); {self.remedy}"


@dataclass(frozen=True)
class Boundary:
    """Why a stage's results are written for others, rather than used in the same kernel."""

    stage: int
    """Number of the stage whose results are used."""
    chunks: float
    """How many of its chunks each task uses, on average."""
    reason: str


@dataclass(frozen=True)
class StageKernel:
    """A kernel's part in a stage."""

    name: str
    launches: int
    bytes_read: int
    """By each launch, in the most frequent kind of task."""
    bytes_written: int


@dataclass(frozen=True)
class StageTiles:
    """Kernels of a task that run together: on some rows, then on the next ones.

    What one of them has read or written is still in the processor's cache for the others.
    """

    kernels: tuple[str, ...]
    """Their names, in the order in which they run."""
    rows: int
    """Rows of a tile."""
    of_rows: int
    """Rows of a chunk, in the most frequent kind of task."""
    bytes_cached: int
    """What they find in the cache, of the bytes that they read."""


@dataclass(frozen=True)
class StageUnjoined:
    """A kernel that reads arrays where they are, instead of one that they would be joined to."""

    kernel: str
    arrays: int
    """How many would be joined."""
    calls: int
    """Calls of the kernel: for what needs one of the arrays only, and along their borders."""
    bytes_copied: int
    """What is still copied, along the borders."""


@dataclass(frozen=True)
class StageDevice:
    """Where calls of a stage run, on workers that own a GPU."""

    calls: str
    """Functions that run together there; the one that needs the host, if one does."""
    on_device: bool
    reason: str
    """Why they run on the host; empty if they do not."""
    tasks: int
    bytes_to_device: int
    """Copied to the GPU for all of these tasks."""
    bytes_to_host: int
    """Copied from there."""


@dataclass(frozen=True)
class Stage:
    """Tasks that make the chunks of one array."""

    number: int
    name: str
    """dask's name for the layer, without its digest."""
    layer: str
    """The layer's whole name."""
    variable: str | None
    """The user's variable that holds the array, where it is known."""
    places: tuple[Place, ...]
    """The user's lines behind it."""
    layers: tuple[str, ...]
    """dask's layers that are computed in these tasks."""
    tasks_before: int
    """Tasks of those layers in the graph as it was built."""
    tasks_after: int
    kinds: int
    """Kinds of tasks, by calls and by dtypes, shapes and strides of chunks."""
    inputs: tuple[ChunkArray, ...]
    results: tuple[ChunkArray, ...]
    """The chunk, or the several arrays of a partial result; none where nothing is known."""
    kernels: tuple[StageKernel, ...]
    tiles: tuple[StageTiles, ...]
    """Of the most frequent kind of task."""
    unjoined: tuple[StageUnjoined, ...]
    """Of the most frequent kind of task."""
    calls: tuple[tuple[str, int], ...]
    """Functions called as they are, and how often."""
    bytes_read: int
    """By a task of the most frequent kind, kernels and other calls together, from the processor's
    cache too."""
    bytes_written: int
    bytes_least_read: int
    """Bytes of the task's inputs that are needed, each once."""
    bytes_least_written: int
    """Bytes of the task's result."""
    bytes_total: int
    """Read and written by all tasks."""
    bytes_exact: bool
    """False where a function may move more than its arguments and its result."""
    operations: float
    """Scalar operations of a task."""
    heavy: float
    """How many of them are exp, log, sin and the like."""
    intensity: float | None
    """Operations per byte moved by kernels; None without kernels."""
    seconds: float
    """Expected for a task on one thread, without dask's part."""
    seconds_total: float
    """Expected for the stage on all threads of the machine."""
    peak: int
    """Bytes of memory that a task needs at most, its inputs and its result included."""
    peak_exact: bool
    """False where functions are called of which it is not known how much more they need."""
    peak_lent: int
    """The same where a task that joins chunks gets them one by one, as workers lend them."""
    need: int
    """Bytes that workers reserve for a task, its inputs included: what it takes until its kernels
    are compiled, where the sizes of its chunks say so."""
    peak_unfused: int
    """Bytes that the same task needs in plain dask."""
    peak_unfused_exact: bool
    boundaries: tuple[Boundary, ...]
    devices: tuple[StageDevice, ...] = ()
    """Where its calls run, on workers that own a GPU."""
    unknown: str = ""
    """Why no more is known, if so."""

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by a task."""
        return self.bytes_read + self.bytes_written

    @property
    def bytes_cached(self) -> int:
        """Bytes of those read that are in the processor's cache, as kernels share tiles."""
        return sum(each.bytes_cached for each in self.tiles)

    @property
    def bytes_least(self) -> int:
        """The least that a task could read and write."""
        return self.bytes_least_read + self.bytes_least_written


@dataclass(frozen=True)
class Totals:
    """Of the whole program."""

    tasks_before: int
    """Tasks of the graph as it was built."""
    tasks_after: int
    """Tasks of the graph as it runs."""
    launches: int
    bytes_moved: int
    bytes_least: int
    """If each source were read once, and each result written once."""
    seconds: float
    """Expected on all threads of the machine."""
    peak: int
    """Bytes that the most demanding task needs."""
    peak_exact: bool
    """False where functions are called of which it is not known how much more they need."""
    peak_unfused: int
    """Bytes that the most demanding task needs in plain dask."""
    peak_unfused_exact: bool
    kept: int
    """Bytes of results that are kept at once at most, if tasks run one after the other in dask's
    order, as far as their sizes are known."""
    fused_tasks: int
    """Tasks that launch a kernel."""
