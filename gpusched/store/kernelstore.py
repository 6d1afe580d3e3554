"""Compiled kernels in memory, by definition: one store per device, where each is made once."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import field
from functools import partial

from gpusched import events
from gpusched.dataclass import dataclass
from gpusched.emit.kernel import Kernel
from gpusched.newest import Newest
from gpusched.store.handles import CompiledKernel, Handle

MOST = 4096
"""Kernels that a store holds, the oldest of which goes first; plans hold those that they call."""

_stores: weakref.WeakSet[KernelStore] = weakref.WeakSet()
"""All stores of this process; changed only where one is made, which takes no lock."""


@dataclass
class _Held:
    """What a store has of a kernel."""

    handle: Handle
    compiled: CompiledKernel | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is loaded or compiled."""


class KernelStore(ABC):
    """Kernels by definition; a backend says how one is found and how one is made.

    Notes
    -----
    Thread-safe: one lock per kernel, so that a kernel is compiled once while others compile too.
    """

    def __init__(self) -> None:
        self._held: Newest[Kernel, _Held] = Newest(MOST)
        _stores.add(self)

    @abstractmethod
    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose machine code is in a file; None if there is none."""

    @abstractmethod
    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from a file, from other processes, or compiled now."""

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kernel: Kernel) -> bool:
        found = self._held.get(kernel)
        return found is not None and found.compiled is not None

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels in memory."""
        return (kernel for kernel, held in self._held.now() if held.compiled is not None)

    def handle(self, kernel: Kernel) -> Handle:
        """Return `kernel` as launches hold it, the same for all; nothing is compiled or read."""
        return self._of(kernel).handle

    def _of(self, kernel: Kernel) -> _Held:
        found = self._held.get(kernel)
        if found is None:
            handle = Handle(kernel, partial(self.known, kernel), partial(self.get, kernel))
            found = self._held.setdefault(kernel, _Held(handle))
        return found

    def known(self, kernel: Kernel) -> CompiledKernel | None:
        """Return `kernel` compiled, from memory or from disk; None if it is in neither."""
        held = self._of(kernel)
        # Whoever has the lock is compiling it.
        if held.compiled is None and held.lock.acquire(blocking=False):
            try:
                held.compiled = held.compiled or self.loaded(kernel)
            finally:
                held.lock.release()
        return held.compiled

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        held = self._of(kernel)
        found = held.compiled
        if found is not None:
            return found
        started = time.perf_counter()
        with held.lock:
            found = held.compiled
            if found is None:
                found = held.compiled = self.obtained(kernel)
            elif events.active:
                events.record_since("compile", kernel.name, started, about="thread")
        return found

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._held.clear()

    def begin_again(self) -> None:
        """Let go of locks that threads held which a forked process has none of."""
        before, self._held = self._held, Newest(MOST)
        for kernel, held in before.items():
            held.lock = threading.Lock()
            held.handle.begin_again()
            self._held[kernel] = held

    def forget(self, kernel: Kernel) -> None:
        """Forget one kernel, so that it is looked for again."""
        self._held.pop(kernel, None)


def forget(kernel: Kernel) -> None:
    """Forget a kernel in all stores, so that it is made with what is chosen for it then."""
    for store in list(_stores):
        store.forget(kernel)


def _begin_again() -> None:
    for store in list(_stores):
        store.begin_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)
