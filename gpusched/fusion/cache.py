"""Compiled kernels by definition; each is compiled once for all processes that can share it."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import dask

import gpusched
from gpusched import events
from gpusched.fusion import codefiles, emitters, hostloops, sharing
from gpusched.fusion.handles import Call, Handle
from gpusched.fusion.kernel import Kernel
from gpusched.fusion.statistics import updating


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that can be called."""

    kernel: Kernel
    source: str
    """Its text: Python that also runs uncompiled."""
    filename: str
    """Where the text lies; a made-up name in `linecache` where there is no cache directory."""
    name: str
    """Its name in profiles and counters."""
    call: Call
    ready: ClassVar[bool] = True
    """That it can be called at once, as a `Handle` says it."""

    def look(self) -> bool:
        """Return that there is machine code."""
        return True

    def wait(self) -> None:
        """Return at once."""


def directory() -> Path | None:
    """Return where kernels are kept, or None if the configuration says nowhere.

    ``gpusched.fusion.cache-directory``; by default ``gpusched`` in the user's cache directory.
    """
    configured = dask.config.get("gpusched.fusion.cache-directory", "default")
    if configured is None or configured is False:
        return None
    if configured != "default":
        return Path(configured).expanduser()
    return user_caches() / "gpusched"


def user_caches() -> Path:
    """Return the folder in which this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def toolchain() -> str:
    """Return a short digest of everything but kernel and processor that machine code depends on."""
    import llvmlite
    import numba

    parts = [gpusched.__version__, numba.__version__, llvmlite.__version__, sys.version, _libc()]
    parts.append(emitters.digest())
    return hashlib.blake2b("|".join(parts).encode(), digest_size=6).hexdigest()


def _libc() -> str:
    """Return the version of the C library, whose functions kernels call."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        return ""  # Not glibc.


@dataclass(frozen=True)
class _Place:
    """Where the machine code of a kernel is looked for, and what it is compiled from."""

    kernel: Kernel
    """With the options that have been chosen for it."""
    source: str
    filename: str
    wanted: sharing.Wanted


class KernelCache:
    """Kernels by definition.

    Notes
    -----
    Thread-safe: one lock per kernel, so that a kernel is compiled once while others compile too.
    """

    def __init__(self) -> None:
        self._compiled: dict[Kernel, CompiledKernel] = {}
        self._handles: dict[Kernel, Handle] = {}
        self._locks: defaultdict[Kernel, threading.Lock] = defaultdict(threading.Lock)
        self._toolchain: str | None = None

    def __len__(self) -> int:
        return len(self._compiled)

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels in memory."""
        return iter(list(self._compiled))

    def handle(self, kernel: Kernel) -> Handle:
        """Return `kernel` as launches hold it, the same for all; nothing is compiled or read."""
        found = self._handles.get(kernel)
        if found is None:

            def known() -> Call | None:
                compiled = self.known(kernel)
                return None if compiled is None else compiled.call

            made = Handle(kernel, known, lambda: self.get(kernel).call)
            found = self._handles.setdefault(kernel, made)
        return found

    def known(self, kernel: Kernel) -> CompiledKernel | None:
        """Return `kernel` compiled, from memory or from disk; None if it is in neither."""
        found = self._compiled.get(kernel)
        if found is not None or not self._locks[kernel].acquire(blocking=False):
            return found  # Somebody is compiling it.
        try:
            found = self._compiled.get(kernel) or self._load(kernel)
            if found is not None:
                self._compiled[kernel] = found
            return found
        finally:
            self._locks[kernel].release()

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        found = self._compiled.get(kernel)
        if found is not None:
            return found
        started = time.perf_counter()
        with self._locks[kernel]:
            if kernel not in self._compiled:
                self._compiled[kernel] = self._compile(kernel)
            elif events.active:
                events.record_since("compile", kernel.name, started, about="thread")
            return self._compiled[kernel]

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._compiled.clear()
        self._handles.clear()

    def forget(self, kernel: Kernel) -> None:
        """Forget one kernel, so that it is looked for again."""
        self._compiled.pop(kernel, None)
        self._handles.pop(kernel, None)

    def _load(self, kernel: Kernel) -> CompiledKernel | None:
        from gpusched.fusion.backends import cpu

        place = self._place(kernel)
        call = sharing.known(
            place.wanted,
            lambda code: cpu.compile_kernel(place.kernel, place.source, place.filename, code)[0],
        )
        return None if call is None else self._made(kernel, place, call)

    def _compile(self, kernel: Kernel) -> CompiledKernel:
        from gpusched.fusion.backends import cpu

        started = time.perf_counter()
        place = self._place(kernel)
        text, filename = place.source, place.filename
        call, _ = sharing.obtain(
            place.wanted,
            lambda code: cpu.compile_kernel(place.kernel, text, filename, code)[0],
            lambda: cpu.compile_kernel(place.kernel, text, filename),
        )
        with updating() as counters:
            counters.compile_seconds += time.perf_counter() - started
        return self._made(kernel, place, call)

    def _made(self, kernel: Kernel, place: _Place, call: Call) -> CompiledKernel:
        return CompiledKernel(kernel, place.source, place.filename, kernel.name, call)

    def _place(self, kernel: Kernel) -> _Place:
        from gpusched.fusion import tuned

        kernel = tuned.chosen(kernel, tuned.here())
        text = hostloops.source(kernel)
        self._toolchain = self._toolchain or toolchain()
        stored = store(self._toolchain, kernel.name, text)
        filename = str(stored) if stored else register(kernel.name, text)
        key = self._key(kernel, text)
        path = stored and stored.with_name(f"{kernel.name}-{key}.code")
        return _Place(kernel, text, filename, sharing.Wanted(kernel.name, key, path))

    def _key(self, kernel: Kernel, text: str) -> str:
        from gpusched.fusion.backends import objectcode

        self._toolchain = self._toolchain or toolchain()
        parts = ("cpu", self._toolchain, objectcode.processor(), kernel.description, text)
        return hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()


def store(tools: str, name: str, text: str) -> Path | None:
    """Write a source into the cache directory and return its path, if there is one.

    Parameters
    ----------
    tools
        What `toolchain` returned.
    """
    root = directory()
    if root is None:
        return None
    path = root / "kernels" / tools / f"{name}.py"
    try:
        codefiles.folder_for(path)
        if not path.exists():
            codefiles.write(path, text.encode())
    except OSError as error:
        codefiles.warn_unwritable(path, error)
        with updating() as counters:
            counters.kernels_unshared[f"cannot write: {error.strerror or error}"] += 1
        return None
    return path


def register(name: str, text: str) -> str:
    """Keep a source that lies in no file for tracebacks, and return what it is called there."""
    filename = f"<gpusched {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return filename


def reference(kernel: Kernel) -> CompiledKernel:
    """Return `kernel` as plain Python runs it: slow, and the definition of what it means."""
    from gpusched.fusion.backends import python

    text = hostloops.source(kernel)
    filename = register(kernel.name, text)
    call = python.compile_kernel(kernel, text, filename)
    return CompiledKernel(kernel, text, filename, kernel.name, call)


kernels = KernelCache()
"""This process's kernels."""
