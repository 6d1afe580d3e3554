"""Kernels as launches hold them: their machine code is there, or comes later.

There is one store of them for each device, by definition, where each is made once.
"""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from gpusched import events, forks
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import Kernel
from gpusched.newest import Newest
from gpusched.store.statistics import compiling_for

Call = Callable[..., int | None]
"""Machine code: given windows on the arrays, then constants, sizes and strides."""


@dataclass(frozen=True)
class NativeKernel:
    """A kernel's machine code in this process."""

    call: Callable[..., int]
    """Called with arrays, then numbers; raises `TypeError` for others than it is made for."""
    run: int
    """The address of ``int64 run(int64 *block)``, which may run without the GIL, and returns -1 if
    the kernel has raised an error. The block is what `gpusched.backends.entries` says."""
    tiles: Callable[..., int] | None
    """Calls this kernel and others tile by tile, as `gpusched.backends.tiles` says; may be
    called as long as this object is there."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that can be called."""

    kernel: Kernel
    call: Call
    native: NativeKernel | None = None
    """The same for other machine code to call; None where numba or Python runs the kernel."""


class Handle:
    """A kernel whose machine code is looked for when somebody asks for it.

    Parameters
    ----------
    kernel
        The definition.
    known
        Returns it compiled if that takes next to nothing, and None otherwise.
    obtain
        Returns it compiled, however long that takes.
    kept
        Returns whether it is in a file.

    Notes
    -----
    Thread-safe: it is compiled once, and what is set is never taken back. `call` is set before
    `ready`.
    """

    def __init__(
        self,
        kernel: Kernel,
        known: Callable[[], CompiledKernel | None],
        obtain: Callable[[], CompiledKernel],
        kept: Callable[[], bool] = lambda: False,
    ) -> None:
        self.kernel = kernel
        self.name = kernel.name
        self.ready = False
        self.call: Call = self._compile_and_call
        self.native: NativeKernel | None = None
        self.error: Exception | None = None
        """Why it could not be compiled, if so."""
        self.requested = False
        """Whether somebody has been asked to compile it."""
        self.urgent = False
        """Whether that is worth taking time from tasks."""
        self.spent = 0.0
        """Seconds that have been spent doing without it, in all threads."""
        self.repeated = False
        """Whether several graphs have done without it."""
        self.least = 0.0
        """Seconds of the shortest run without it; 0 before the first."""
        self._graph = ""
        self._looked = False
        self._looking = forks.lock()
        self._compiling = forks.lock()
        self._known = known
        self._obtain = obtain
        self._kept = kept

    @classmethod
    def of(cls, found: CompiledKernel) -> Handle:
        """Return a kernel that is compiled as launches hold it."""
        made = cls(found.kernel, lambda: found, lambda: found)
        made._set(found)
        return made

    def __repr__(self) -> str:
        return f"<Handle {self.name}, {'' if self.ready else 'not '}compiled>"

    def look(self) -> bool:
        """Load it if it is in memory or in a file; return whether it is ready.

        Files are looked for once: who compiles it afterwards sets it.
        """
        if not (self.ready or self._looked):
            with self._looking:
                if not self._looked:
                    found = self._known()
                    if found is not None:
                        self._set(found)
                    self._looked = True
        return self.ready

    def is_kept(self) -> bool:
        """Return whether it is in memory or in a file; nothing is loaded or written."""
        return self.ready or self._kept()

    def wait(self) -> None:
        """Compile it if need be, or wait for whoever does; raise what the compiler raises."""
        if self.ready:
            return
        started = time.perf_counter()
        with compiling_for(self.name), self._compiling:
            if not self.ready:
                self._set(self._obtain())
            elif events.active:  # type: ignore[unreachable]  # Another thread has.
                events.record_since("compile", self.name, started, about="thread")

    def count(self, seconds: float, graph: str) -> None:
        """Note what has been spent doing without it, for a graph; empty if that is not known."""
        self.spent += seconds
        self.least = min(seconds, self.least or seconds)
        self.repeated |= bool(graph and self._graph) and graph != self._graph
        self._graph = graph or self._graph

    def _set(self, found: CompiledKernel) -> None:
        self.native = found.native
        self.call = found.call
        self.ready = True

    def _compile_and_call(self, *arguments: Any) -> int | None:
        self.wait()
        return self.call(*arguments)


MOST = 4096
"""Kernels that a store holds, the oldest of which goes first; plans hold those that they call."""

_stores: weakref.WeakSet[KernelStore] = weakref.WeakSet()
"""All stores of this process; changed only where one is made, which takes no lock."""


class KernelStore(ABC):
    """Kernels by definition; a backend says how one is found and how one is made.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self) -> None:
        self._handles: Newest[Kernel, Handle] = Newest(MOST)
        _stores.add(self)

    @abstractmethod
    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose machine code is in a file; None if there is none."""

    @abstractmethod
    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from a file, from other processes, or compiled now."""

    def is_kept(self, kernel: Kernel) -> bool:
        """Return whether a kernel's machine code is in a file; nothing is loaded or written."""
        return False

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kernel: Kernel) -> bool:
        found = self._handles.get(kernel)
        return found is not None and found.ready

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels in memory."""
        return (kernel for kernel, handle in self._handles.now() if handle.ready)

    def handle(self, kernel: Kernel) -> Handle:
        """Return `kernel` as launches hold it, the same for all; nothing is compiled or read."""
        found = self._handles.get(kernel)
        if found is None:
            made = Handle(kernel, lambda: self.loaded(kernel), lambda: self.obtained(kernel),
                          lambda: self.is_kept(kernel))  # fmt: skip
            found = self._handles.setdefault(kernel, made)
        return found

    def get(self, kernel: Kernel) -> Handle:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        handle = self.handle(kernel)
        handle.wait()
        return handle

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._handles.clear()

    def forget(self, kernel: Kernel) -> None:
        """Forget one kernel, so that it is looked for again."""
        self._handles.pop(kernel, None)


def forget(kernel: Kernel) -> None:
    """Forget a kernel in all stores, so that it is made with what is chosen for it then."""
    for store in list(_stores):
        store.forget(kernel)
