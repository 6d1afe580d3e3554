"""Where chunks are kept: the backends of this process, and what each can do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gpusched.backends import arraycalls, cache
from gpusched.backends.buffer_pool import pool
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import SUPPORTED
from gpusched.emit.kernel import Kernel
from gpusched.store import tuned
from gpusched.store.handles import Handle


@dataclass(frozen=True)
class Marks:
    """How launches that go on after their call has returned are timed."""

    make: Callable[[], Any]
    """Puts a mark behind what this thread has launched."""
    passed: Callable[[Any], bool]
    """Returns whether the device has passed a mark."""
    seconds: Callable[[Any, Any], float]
    """Time between two marks that the device has passed."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do besides running kernels; planners ask for this, not for its name."""

    host_memory: bool = False
    """Whether its arrays are NumPy's, so that nothing is copied, and scalars are values too."""
    addresses: bool = False
    """Whether kernels take arrays as they are, by their addresses, and not one-dimensional ones."""
    begins: bool = False
    """Whether a reduction writes each result by itself, perhaps by joining those of several blocks;
    else it joins its values to what is there. Segmented ones always do the latter."""
    errors: bool = False
    """Whether kernels return the floating-point errors that NumPy would report."""
    streams: bool = False
    """Whether loops can write past the caches, and take rows in turn."""
    windows: bool = False
    """Whether kernels join what sliding windows have in common once, and write each result."""
    tiles: bool = False
    """Whether kernels have machine code that another loop calls for a tile of rows at a time."""
    cheap: bool = False
    """Whether a call costs so little that one result may be computed by several, and that one
    operation alone is faster as a kernel; see `gpusched.graph.running.results`."""


def _no_calls(kernel: Handle) -> None:
    """Return None: what is on the host is computed by a program's own calls meanwhile."""


@dataclass(frozen=True)
class Device:
    """A backend in this process: a kind of array, and how to compute with it.

    What writes, compiles and keeps its kernels is a `gpusched.store.handles.KernelStore`.
    """

    name: str
    compile: Callable[[Kernel], Handle]
    """Turns a kernel into what launches hold, which need not be compiled yet."""
    empty: Callable[[tuple[int, ...], np.dtype], Any]
    """Allocates an uninitialised array."""
    full: Callable[[tuple[int, ...], Any, np.dtype], Any]
    """Allocates an array of one value."""
    take_in: Callable[[np.ndarray], Any]
    """Copies a NumPy array to the device."""
    synchronize: Callable[[], None]
    """Waits for what this thread has launched."""
    calls: Callable[[Handle], Handle | None] = _no_calls
    """Returns what does by calls of the array library what a kernel does that is not compiled; None
    where it cannot."""
    marks: Marks | None = None
    """For timing launches; None where they are over when their call returns."""
    can: Capabilities = Capabilities()
    place: Callable[[], tuned.Place] = tuned.here
    """Returns what is remembered of the fastest choices for it is found by."""
    in_order: Callable[[], bool] = lambda: True
    """Returns whether whoever uses what this thread has launched comes after it, wherever that is:
    on a stream of its own, a thread has to wait for its results. Those of CUDA's null stream need
    no waiting, which would let go of Python's lock, and get it back when other threads let go."""

    def holds(self, value: Any) -> bool:
        """Return whether a value is an array that kernels of this backend can take."""
        found = device_of(value)
        if found is None or found.name == self.name:
            return found is not None
        return found.can.host_memory and self.can.host_memory


def _nothing() -> None:
    """Wait for nothing: calls on the host are done when they return."""


HOST = Device(
    "cpu", cache.kernels.handle, pool.empty, pool.full, np.array, _nothing,
    can=Capabilities(host_memory=True, errors=True, streams=True, windows=True, tiles=True,
                     cheap=True),
)  # fmt: skip
"""NumPy arrays."""


@lru_cache(maxsize=1)
def cuda() -> Device:
    """Return CuPy's arrays on its current device."""
    import cupy

    from gpusched.backends.cuda import runtime

    def synchronize() -> None:
        cupy.cuda.get_current_stream().synchronize()

    def mark() -> Any:
        event = cupy.cuda.Event()
        event.record()
        return event

    def passed(event: Any) -> bool:
        return bool(event.done)

    def seconds(begin: Any, end: Any) -> float:
        milliseconds: float = cupy.cuda.get_elapsed_time(begin, end)
        return milliseconds / 1e3

    return Device("cuda", runtime.handle, cupy.ndarray, cupy.full, cupy.array, synchronize,
                  lambda kernel: arraycalls.in_place_of(kernel, cupy),
                  Marks(mark, passed, seconds),
                  Capabilities(addresses=True, begins=True), runtime.here,
                  lambda: cupy.cuda.get_current_stream().ptr == 0)  # fmt: skip


COPIED_TOGETHER = 512
"""Elements along the last axis that are copied before the next ones: lines of the cache that hold
them stay there for the elements beside them. 300 MB of days by place took 90 ms to be put side by
side by place, and 120 to 210 as NumPy copies them all at once; a matrix of 4,000 x 3,000 took 20
ms instead of 47 (AMD EPYC). With 256 it was 1.3 times as long."""


def copy_into(into: np.ndarray, array: np.ndarray) -> None:
    """Assign an array on the host to another one, in C order, that it broadcasts to.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.backends.devices import copy_into
    >>> into = np.empty((2, 3))
    >>> copy_into(into, np.arange(6).reshape(3, 2).T)
    >>> into
    array([[0., 2., 4.],
           [1., 3., 5.]])
    """
    steps = [abs(step) for n, step in zip(array.shape, array.strides, strict=True) if n > 1]
    length = into.shape[-1] if array.shape == into.shape and steps else 0
    if length <= COPIED_TOGETHER or steps[-1] == min(steps):
        into[...] = array
        return
    for start in range(0, length, COPIED_TOGETHER):
        part = (..., slice(start, start + COPIED_TOGETHER))
        into[part] = array[part]


def strides_are_whole(array: np.ndarray) -> bool:
    """Return whether an array's strides are whole numbers of elements, as kernels have them.

    Those of a field of records need not be.
    """
    size = array.itemsize
    return array.flags.forc or size == 0 or not any(stride % size for stride in array.strides)


def device_of(value: Any) -> Device | None:
    """Return the device of an array that kernels can take, or None for anything else.

    Examples
    --------
    >>> device_of(np.ones(3)).name
    'cpu'
    >>> device_of(np.ones(3, "longdouble")) is None
    True
    """
    if type(value) is np.ndarray:
        supported = value.dtype in SUPPORTED and value.dtype.isnative
        return HOST if supported and strides_are_whole(value) else None
    cupy = sys.modules.get("cupy")
    if cupy is not None and type(value) is cupy.ndarray and value.dtype in SUPPORTED:
        return cuda()
    return None
