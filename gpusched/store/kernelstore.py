"""Compiled kernels in memory, by definition: one store per device, where each is made once."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpusched import events
from gpusched.emit.kernel import Kernel
from gpusched.store.handles import CompiledKernel, Handle

MOST = 4096
"""Kernels that a store holds, the oldest of which goes first; plans hold those that they call."""

_stores: weakref.WeakSet[KernelStore] = weakref.WeakSet()
"""All stores of this process; changed only where one is made, which takes no lock."""


class KernelStore(ABC):
    """Kernels by definition; a backend says how one is found and how one is made.

    Notes
    -----
    Thread-safe: one lock per kernel, so that a kernel is compiled once while others compile too.
    """

    def __init__(self) -> None:
        self._compiled: dict[Kernel, CompiledKernel] = {}
        self._handles: dict[Kernel, Handle] = {}
        self._locks: defaultdict[Kernel, threading.Lock] = defaultdict(threading.Lock)
        _stores.add(self)

    @abstractmethod
    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose machine code is in a file; None if there is none."""

    @abstractmethod
    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from a file, from other processes, or compiled now."""

    def __len__(self) -> int:
        return len(self._compiled)

    def __contains__(self, kernel: Kernel) -> bool:
        return kernel in self._compiled

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels in memory."""
        return iter(list(self._compiled))

    def handle(self, kernel: Kernel) -> Handle:
        """Return `kernel` as launches hold it, the same for all; nothing is compiled or read."""
        found = self._handles.get(kernel)
        if found is None:
            made = Handle(kernel, partial(self.known, kernel), partial(self.get, kernel))
            found = self._handles.setdefault(kernel, made)
            self._forget_oldest(self._handles)
        return found

    def known(self, kernel: Kernel) -> CompiledKernel | None:
        """Return `kernel` compiled, from memory or from disk; None if it is in neither."""
        found = self._compiled.get(kernel)
        if found is not None:
            return found
        lock = self._locks[kernel]
        if not lock.acquire(blocking=False):
            return None  # Somebody is compiling it.
        try:
            found = self._compiled.get(kernel) or self.loaded(kernel)
            if found is not None:
                self._compiled[kernel] = found
            return found
        finally:
            lock.release()
            self._forget_oldest(self._compiled)

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        found = self._compiled.get(kernel)
        if found is not None:
            return found
        started = time.perf_counter()
        with self._locks[kernel]:
            found = self._compiled.get(kernel)
            if found is None:
                found = self._compiled[kernel] = self.obtained(kernel)
            elif events.active:
                events.record_since("compile", kernel.name, started, about="thread")
        self._forget_oldest(self._compiled)
        return found

    def _forget_oldest(self, kept: dict[Kernel, Any]) -> None:
        while len(kept) > MOST:
            oldest = next(iter(list(kept)))
            kept.pop(oldest, None)
            if oldest not in self._compiled and oldest not in self._handles:
                self._locks.pop(oldest, None)

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._compiled.clear()
        self._handles.clear()

    def begin_again(self) -> None:
        """Let go of locks that threads held which a forked process has none of."""
        self._locks = defaultdict(threading.Lock)
        for handle in self._handles.values():
            handle.begin_again()

    def forget(self, kernel: Kernel) -> None:
        """Forget one kernel, so that it is looked for again."""
        self._compiled.pop(kernel, None)
        self._handles.pop(kernel, None)


def forget(kernel: Kernel) -> None:
    """Forget a kernel in all stores, so that it is made with what is chosen for it then."""
    for store in list(_stores):
        store.forget(kernel)


def _begin_again() -> None:
    for store in list(_stores):
        store.begin_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)
