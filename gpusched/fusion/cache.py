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
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import dask

import gpusched
from gpusched import events
from gpusched.fusion import (
    codefiles,
    compiletimes,
    emitters,
    hostloops,
    kernelfiles,
    service,
    sharing,
    worthwhile,
)
from gpusched.fusion.backends import native, processors
from gpusched.fusion.handles import Call, Handle
from gpusched.fusion.kernel import Kernel
from gpusched.fusion.statistics import count_compilation, updating


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
    native: native.NativeKernel | None = None
    """The same for other machine code to call; None where numba or Python runs the kernel."""
    ready: ClassVar[bool] = True
    """That it can be called at once, as a `Handle` says it."""

    def look(self) -> bool:
        """Return that it can be called."""
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


@lru_cache(maxsize=1)
def toolchain() -> str:
    """Return a short digest of everything but kernel and processor that machine code depends on."""
    compilers = [version("numba"), version("llvmlite")]
    parts = [gpusched.__version__, *compilers, sys.version, _libc(), emitters.digest()]
    return hashlib.blake2b("|".join(parts).encode(), digest_size=6).hexdigest()


def folder_name() -> str:
    """Return the name of the folder of what this toolchain makes for this processor."""
    return f"{toolchain()}-{processors.key()}"


def made_with() -> dict[str, str]:
    """Return what people are told of kernels that are compiled here."""
    return {
        "gpusched": gpusched.__version__,
        "python": sys.version.split()[0],
        "numba": version("numba"),
        "target": processors.name(),
    }


def _libc() -> str:
    """Return the version of the C library, whose functions kernels call."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        return ""  # Not glibc.


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
        return found

    def known(self, kernel: Kernel) -> CompiledKernel | None:
        """Return `kernel` compiled, from memory or from disk; None if it is in neither."""
        found = self._compiled.get(kernel)
        if found is not None or not self._locks[kernel].acquire(blocking=False):
            return found  # Somebody is compiling it.
        try:
            found = self._compiled.get(kernel) or _loaded(kernel)
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
                self._compiled[kernel] = _obtained(kernel)
            elif events.active:
                events.record_since("compile", kernel.name, started, about="thread")
            return self._compiled[kernel]

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


def _loaded(kernel: Kernel) -> CompiledKernel | None:
    """Return a kernel whose machine code is in a file."""
    if processors.interpreted():
        return reference(kernel)
    prepared = prepare(kernel)
    return sharing.known(prepared.wanted, prepared.load)


def _obtained(kernel: Kernel) -> CompiledKernel:
    """Return a kernel from a file, from others, or compiled now."""
    if processors.interpreted():
        return reference(kernel)
    started = time.perf_counter()
    prepared = prepare(kernel)
    found, _ = sharing.obtain(prepared.wanted, prepared.load, prepared.build)
    if service.awaited():
        with updating() as counters:
            counters.compile_seconds += time.perf_counter() - started
    return found


@dataclass(frozen=True)
class PreparedKernel:
    """A kernel's source, and what is needed to compile or to load it."""

    kernel: Kernel
    """What was asked for."""
    chosen: Kernel
    """The same with the options that are the fastest here; it is what is compiled."""
    source: str
    filename: str
    """Where the source is kept; a made-up name in `linecache` where there is no cache directory."""
    stored: Path | None
    """The file of the source; None if there is none."""

    @cached_property
    def wanted(self) -> sharing.Wanted:
        """What to look for, and where."""
        name = self.chosen.name
        parts = ("cpu", toolchain(), processors.key(), self.chosen.description, self.source)
        key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
        path = self.stored and self.stored.with_name(f"{name}-{key}.code")
        return sharing.Wanted(name, key, path)

    def load(self, code: bytes) -> CompiledKernel:
        """Return the kernel of machine code, which nothing of numba is needed for.

        Raises
        ------
        gpusched.fusion.backends.native.UnknownCodeError
            If it cannot run here.
        """
        found = native.load(code, self.chosen.name)
        return self._compiled(found.call, found)

    def compile(self) -> bytes | None:
        """Return the machine code, made by numba; None if it is good in one process only."""
        from gpusched.fusion.backends import cpu

        return cpu.compile_code(self.chosen, self.source, self.filename)

    def made_of(self, code: bytes | None) -> CompiledKernel:
        """Return the kernel of what `compile` returned."""
        if code is not None:
            return self.load(code)
        from gpusched.fusion.backends import cpu

        return self._compiled(cpu.compile_here(self.chosen, self.source, self.filename))

    def build(self) -> tuple[CompiledKernel, bytes | None]:
        """Return the kernel, compiled now, and its machine code unless it is this process's.

        By the compile service, or in this process; it is counted, and learned from.
        """
        code = service.compiled(self.chosen, self.wanted)
        if code is None:
            code = self._compile_here()
        return self.made_of(code), code

    def _compile_here(self) -> bytes | None:
        import gpusched.fusion.backends.cpu  # noqa: F401  half a second, which is no kernel's time

        with service.here():
            started = time.thread_time()
            code = self.compile()
            seconds = time.thread_time() - started
        compiletimes.learn(worthwhile.units(self.chosen), seconds)
        count_compilation(self.kernel.name, seconds)
        return code

    def _compiled(self, call: Call, found: native.NativeKernel | None = None) -> CompiledKernel:
        return CompiledKernel(
            self.kernel, self.source, self.filename, self.kernel.name, call, found
        )


def is_compiled(kernel: Kernel) -> bool:
    """Return whether this process has a kernel, or finds it on disk; nothing is loaded or written.

    Examples
    --------
    >>> from gpusched.fusion.cache import is_compiled
    >>> from gpusched.fusion.kernel import Kernel
    >>> is_compiled(Kernel((), ("float64",), (), (), ("map",)))
    False
    """
    from gpusched.fusion import tuned

    if kernel in kernels or processors.interpreted():
        return True
    root = directory()
    if root is None:
        return False
    chosen = tuned.chosen(kernel, tuned.here())
    text = hostloops.source(chosen)
    source = root / "kernels" / folder_name() / f"{chosen.name}.py"
    path = PreparedKernel(kernel, chosen, text, str(source), source).wanted.path
    return path is not None and path.exists()


def code_for(kernel: Kernel, key: str) -> bytes:
    """Return a kernel's machine code under the key that another process has for it.

    Parameters
    ----------
    kernel
        With all its options.
    key
        Of the code, as that process has it: of its versions and settings, too.

    Raises
    ------
    OtherToolchainError
        If this process would make other code.
    """
    from gpusched.fusion.backends import cpu

    text = hostloops.source(kernel)
    prepared = PreparedKernel(kernel, kernel, text, register(kernel.name, text), None)
    if prepared.wanted.key != key:
        raise OtherToolchainError("another version of gpusched, numba or Python, or other settings")
    code = cpu.compile_code(kernel, text, prepared.filename)
    if code is None:
        raise OtherToolchainError("code that is good in one process only")
    return code


class OtherToolchainError(RuntimeError):
    """Code would not be what another process wants."""


def prepare(kernel: Kernel) -> PreparedKernel:
    """Return a kernel with its source, which is written to the cache directory if there is one."""
    from gpusched.fusion import tuned

    chosen = tuned.chosen(kernel, tuned.here())
    text = hostloops.source(chosen)
    stored = store(chosen.name, text)
    filename = str(stored) if stored else register(chosen.name, text)
    return PreparedKernel(kernel, chosen, text, filename, stored)


def store(name: str, text: str) -> Path | None:
    """Write a source into the cache directory and return its path, if there is one."""
    root = directory()
    if root is None:
        return None
    path = root / "kernels" / folder_name() / f"{name}.py"
    try:
        codefiles.folder_for(path)
        if not path.exists():
            codefiles.write(path, text.encode())
            kernelfiles.describe(path.parent, made_with())
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

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=kernels.begin_again)
