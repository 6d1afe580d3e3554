"""Compiled kernels, in memory and on disk, each compiled once per process and machine."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import tempfile
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dask

from gpusched.fusion import generate
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
    call: Callable[..., int | None]
    """Machine code: windows on the arrays, then constants, sizes and strides."""


def directory() -> Path | None:
    """Return where kernels are kept, or None if the configuration says nowhere.

    ``gpusched.fusion.cache-directory``; by default ``gpusched`` in the user's cache directory.
    """
    configured = dask.config.get("gpusched.fusion.cache-directory", "default")
    if configured is None or configured is False:
        return None
    if configured != "default":
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpusched"


def toolchain() -> str:
    """Return a short digest of everything but the kernel that machine code depends on."""
    import numba

    from gpusched.fusion import backends

    parts = [numba.__version__, sys.version, str(generate.VERSION)]
    root = Path(backends.__file__).parents[1]
    sources = [root / "backends" / name for name in ("cpu.py", "primitives.py", "names.py")]
    for path in [*sources, *sorted((root / "vectormath").glob("*.py"))]:
        parts.append(hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest())
    return hashlib.blake2b("|".join(parts).encode(), digest_size=6).hexdigest()


Compile = Callable[[Kernel], CompiledKernel]
"""What turns a kernel into something to call."""


class KernelCache:
    """Kernels by definition.

    Notes
    -----
    Thread-safe: one lock per kernel, so that a kernel is compiled once while others compile too.
    """

    def __init__(self) -> None:
        self._compiled: dict[Kernel, CompiledKernel] = {}
        self._locks: defaultdict[Kernel, threading.Lock] = defaultdict(threading.Lock)
        self._toolchain: str | None = None

    def __len__(self) -> int:
        return len(self._compiled)

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return `kernel` compiled, from memory, from disk, or compiled now."""
        found = self._compiled.get(kernel)
        if found is not None:
            return found
        with self._locks[kernel]:
            if kernel not in self._compiled:
                self._compiled[kernel] = self._compile(kernel)
            return self._compiled[kernel]

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._compiled.clear()

    def _compile(self, kernel: Kernel) -> CompiledKernel:
        from gpusched.fusion.backends import cpu

        text = generate.source(kernel)
        started = time.perf_counter()
        filename = self._store(kernel, text)
        if filename is None:
            filename = _register(kernel, text)
            call = cpu.compile_kernel(kernel, text, filename, cache=False)
        else:
            try:
                call = cpu.compile_kernel(kernel, text, filename, cache=True)
            except OSError as error:
                _warn(Path(filename), error)
                call = cpu.compile_kernel(kernel, text, filename, cache=False)
        hit = bool(sum(call.stats.cache_hits.values())) if hasattr(call, "stats") else False
        with updating() as counters:
            counters.compilations += not hit
            counters.compile_seconds += time.perf_counter() - started
        return CompiledKernel(kernel, text, filename, kernel.name, call)

    def _store(self, kernel: Kernel, text: str) -> str | None:
        """Write a kernel's source into the cache directory and return its path, if there is one."""
        root = directory()
        if root is None:
            return None
        self._toolchain = self._toolchain or toolchain()
        path = root / "kernels" / self._toolchain / f"{kernel.name}.py"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(path, text)
        except OSError as error:
            _warn(path, error)
            return None
        return str(path)


def _write(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _register(kernel: Kernel, text: str) -> str:
    filename = f"<gpusched {kernel.name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return filename


def _warn(path: Path, error: OSError) -> None:
    warnings.warn(
        f"gpusched cannot keep compiled kernels in {path.parent}: {error.strerror or error}. "
        "They are compiled again in each process. Free space there, or set "
        "gpusched.fusion.cache-directory to another place (null for none).",
        RuntimeWarning,
        stacklevel=2,
    )


def reference(kernel: Kernel) -> CompiledKernel:
    """Return `kernel` as plain Python runs it: slow, and the definition of what it means."""
    from gpusched.fusion.backends import python

    text = generate.source(kernel)
    filename = _register(kernel, text)
    call = python.compile_kernel(kernel, text, filename)
    return CompiledKernel(kernel, text, filename, kernel.name, call)


kernels = KernelCache()
"""This process's kernels."""
