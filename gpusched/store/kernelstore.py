"""Compiled kernels in memory, by definition: one store per device, where each is made once."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator

from gpusched.emit.kernel import Kernel
from gpusched.newest import Newest
from gpusched.store.handles import CompiledKernel, Handle

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

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        handle = self.handle(kernel)
        handle.wait()
        assert handle.compiled is not None
        return handle.compiled

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
