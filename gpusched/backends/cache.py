"""Compiled kernels of the CPU; each is compiled once for all processes that can share it."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from gpusched.backends import native
from gpusched.dataclass import dataclass
from gpusched.emit import hostloops
from gpusched.emit.kernel import Kernel
from gpusched.emit.parsing import register
from gpusched.store import (
    codefiles,
    emitters,
    kernelfiles,
    processors,
    sharing,
    tuned,
    unwritable,
    worthwhile,
)
from gpusched.store.handles import Call, CompiledKernel, NativeKernel
from gpusched.store.kernelfiles import OtherToolchainError
from gpusched.store.kernelstore import KernelStore
from gpusched.store.service import client as service
from gpusched.store.statistics import count_compilation, updating


class KernelCache(KernelStore):
    """The kernels of a process's CPU."""

    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose machine code is in a file; None if there is none."""
        if processors.interpreted():
            return reference(kernel)
        if kernelfiles.is_empty():
            return None
        prepared = _prepared(kernel)
        if not _is_kept(prepared.wanted):
            return None
        prepared = _kept(prepared)
        return sharing.known(prepared.wanted, prepared.load)

    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from a file, from other processes, or compiled now."""
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
        made_for = ("cpu", emitters.toolchain(), processors.key())
        parts = (*made_for, self.chosen.description, self.source)
        key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
        path = self.stored and self.stored.with_name(f"{name}-{key}.code")
        return sharing.Wanted(name, key, path)

    def load(self, code: bytes) -> CompiledKernel:
        """Return the kernel of machine code, which nothing of numba is needed for.

        Raises
        ------
        gpusched.backends.native.UnknownCodeError
            If it cannot run here.
        """
        found = native.load(code, self.chosen.name)
        return self._compiled(found.call, found)

    def compile(self) -> bytes | None:
        """Return the machine code, made by numba; None if it is good in one process only."""
        from gpusched.backends import cpu

        return cpu.compile_code(self.chosen, self.source, self.filename)

    def made_of(self, code: bytes | None) -> CompiledKernel:
        """Return the kernel of what `compile` returned."""
        if code is not None:
            return self.load(code)
        from gpusched.backends import cpu

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
        import gpusched.backends.cpu  # noqa: F401  half a second, which is no kernel's time

        with service.here():
            started = time.thread_time()
            code = self.compile()
            seconds = time.thread_time() - started
        worthwhile.learn(self.chosen, seconds)
        count_compilation(self.kernel.name, seconds)
        return code

    def _compiled(self, call: Call, found: NativeKernel | None = None) -> CompiledKernel:
        return CompiledKernel(
            self.kernel, self.source, self.filename, self.kernel.name, call, found
        )


def is_compiled(kernel: Kernel) -> bool:
    """Return whether this process has a kernel, or finds it on disk; nothing is loaded or written.

    Examples
    --------
    >>> from gpusched.backends.cache import is_compiled
    >>> from gpusched.emit.kernel import Kernel
    >>> is_compiled(Kernel((), ("float64",), (), (), ("map",)))
    False
    """
    if kernel in kernels or processors.interpreted():
        return True
    return _is_kept(_prepared(kernel).wanted)


def _is_kept(wanted: sharing.Wanted) -> bool:
    # A folder that this user may not enter is as good as none.
    return wanted.path is not None and os.path.exists(wanted.path)


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
    from gpusched.backends import cpu

    text = hostloops.source(kernel)
    filename = register(f"<gpusched {kernel.name}>", text)
    prepared = PreparedKernel(kernel, kernel, text, filename, None)
    if prepared.wanted.key != key:
        raise OtherToolchainError("another version of gpusched, numba or Python, or other settings")
    code = cpu.compile_code(kernel, text, prepared.filename)
    if code is None:
        raise OtherToolchainError("code that is good in one process only")
    return code


def prepare(kernel: Kernel) -> PreparedKernel:
    """Return a kernel with its source, which is written to the cache directory if there is one."""
    return _kept(_prepared(kernel))


def _kept(found: PreparedKernel) -> PreparedKernel:
    """Return the same with its source in its file, or in memory where there is no such file."""
    if found.stored is not None and _written(found.stored, found.source):
        return found
    filename = register(f"<gpusched {found.chosen.name}>", found.source)
    return replace(found, filename=filename, stored=None)


def _prepared(kernel: Kernel) -> PreparedKernel:
    """Return a kernel with its source, and the file that it belongs in; nothing is written."""
    chosen = tuned.chosen(kernel, tuned.here())
    root = kernelfiles.directory()
    stored = root and root / "kernels" / emitters.folder_name() / f"{chosen.name}.py"
    return PreparedKernel(kernel, chosen, hostloops.source(chosen), str(stored), stored)


def _written(path: Path, text: str) -> bool:
    """Write a source unless it is there; return whether it is."""
    try:
        codefiles.folder_for(path)
        if not path.exists():
            codefiles.write(path, text.encode())
            kernelfiles.describe(path.parent, emitters.made_with())
    except OSError as error:
        unwritable.warn(path, error)
        with updating() as counters:
            counters.kernels_unshared[f"cannot write: {error.strerror or error}"] += 1
        return False
    return True


def reference(kernel: Kernel) -> CompiledKernel:
    """Return `kernel` as plain Python runs it: slow, and the definition of what it means."""
    from gpusched.backends import python

    text = hostloops.source(kernel)
    filename = register(f"<gpusched {kernel.name}>", text)
    call = python.compile_kernel(kernel, text, filename)
    return CompiledKernel(kernel, text, filename, kernel.name, call)


kernels = KernelCache()
"""This process's kernels."""
