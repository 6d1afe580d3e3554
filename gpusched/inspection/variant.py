"""What one kind of task does: gone through once, for all tasks of the same kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpusched.breaks import Reason
from gpusched.emit.kernel import Kernel
from gpusched.inspection.tracing import TracingRecorder
from gpusched.plan.kernelbuilder import KernelBuilder
from gpusched.plan.plan import Launch
from gpusched.plan.tiles import TiledLaunches
from gpusched.plan.unjoined import UnjoinedLaunch
from gpusched.record.callers import Site


@dataclass(frozen=True)
class KernelUse:
    """One launch in one kind of task."""

    builder: KernelBuilder
    launch: Launch
    recorder: TracingRecorder
    layers: dict[int, str]
    """Layer of dask's graph by the register of a call's result."""
    arguments: dict[int, str]
    """Layer that an input comes from, by the recorder's register."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that is launched."""
        return self.launch.kernel.kernel

    @property
    def elements(self) -> int:
        """Elements gone through."""
        size = 1
        for n in self.builder.group.shape:
            size *= n
        return size


@dataclass(frozen=True)
class CallUse:
    """A function called as it is, on whole chunks."""

    name: str
    layer: str
    bytes_read: int
    bytes_written: int
    known: bool = True
    """Whether the bytes are all there are: a function of the user's may read more than once."""
    source: bool = False
    """Whether it reads chunks from where they are kept, such as a file."""


@dataclass(frozen=True)
class DeviceUse:
    """Where calls that run together run, on a worker that owns a GPU."""

    name: str
    """Of the functions; of the one that needs the host, if it does."""
    on_device: bool
    reason: str
    """Why they run on the host; empty if they do not."""
    to_device: int
    """Bytes copied for them to the GPU."""
    to_host: int
    """Bytes copied for them from there."""


@dataclass(frozen=True)
class Halt:
    """A graph break."""

    operation: str
    reason: Reason
    layer: str
    site: Site | None = None
    function: Any = None
    """The user's own function, where it is one that is not recorded."""
    counted: bool = True
    """Whether `gpusched.statistics` counts it too when the task runs."""


@dataclass
class Variant:
    """One kind of task: the same calls on inputs of the same dtypes, shapes and strides."""

    key: Any
    """Of the first such task."""
    name: str
    """The layer that the result belongs to."""
    layers: list[str]
    """The layers whose calls it makes."""
    tasks: int = 0
    program: bool = False
    """Whether the task is one of gpusched's programs."""
    kernels: list[KernelUse] = field(default_factory=list)
    tiles: list[TiledLaunches] = field(default_factory=list)
    """Kernels that run together on some rows at a time."""
    unjoined: list[UnjoinedLaunch] = field(default_factory=list)
    """Kernels that read arrays where they are, instead of one that they would be joined to."""
    calls: list[CallUse] = field(default_factory=list)
    halts: list[Halt] = field(default_factory=list)
    apart: list[tuple[str, Reason]] = field(default_factory=list)
    """What its plans do not put together, and why."""
    devices: list[DeviceUse] = field(default_factory=list)
    """Where its calls run, on a worker that owns a GPU."""
    inputs: list[tuple[str, Any]] = field(default_factory=list)
    """(layer, array) of each chunk it is given."""
    least_read: int = 0
    """Bytes of the inputs that are needed, each once."""
    least_written: int = 0
    """Bytes of the result."""
    peak: int = 0
    """Bytes of memory at most, inputs and result included."""
    peak_known: bool = True
    """False where a function may need more."""
    joined: tuple[int, int] | None = None
    """Bytes of the result and of the largest input, of a task that does nothing but to join."""
    unfused_peak: int = 0
    """The same where dask runs the task without gpusched."""
    unfused_peak_known: bool = True
    result: Any = None
    unknown: str = ""
    """Why nothing more is known, if so."""
