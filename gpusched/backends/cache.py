"""Compiled kernels of the CPU; each is compiled once for all processes that can share it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from gpusched.backends import native
from gpusched.dataclass import dataclass
from gpusched.emit import hostloops
from gpusched.emit.kernel import Kernel
from gpusched.emit.parsing import register
from gpusched.store import emitters, kernelfiles, processors, sharing, tuned
from gpusched.store.handles import CompiledKernel, KernelStore
from gpusched.store.kernelfiles import OtherToolchainError
from gpusched.store.service import client as service


class KernelCache(KernelStore):
    """The kernels of a process's CPU."""

    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose machine code is in a file; None if there is none."""
        if processors.interpreted():
            return reference(kernel)
        if kernelfiles.is_empty():
            return None
        prepared = prepare(kernel)
        return sharing.known(prepared.wanted, prepared.load) if prepared.wanted.is_kept else None

    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from a file, from other processes, or compiled now."""
        if processors.interpreted():
            return reference(kernel)
        prepared = prepare(kernel)
        found = sharing.obtain(prepared.wanted, prepared.load, prepared.build)
        prepared.describe()
        return found

    def is_kept(self, kernel: Kernel) -> bool:
        """Return whether a kernel's machine code is in a file; nothing is loaded or written.

        Examples
        --------
        >>> from gpusched.backends.cache import KernelCache
        >>> from gpusched.emit.kernel import Kernel
        >>> KernelCache().is_kept(Kernel((), ("float64",), (), (), ("map",)))
        False
        """
        return processors.interpreted() or prepare(kernel).wanted.is_kept


@dataclass(frozen=True)
class PreparedKernel:
    """A kernel's source, and what is needed to compile or to load it."""

    kernel: Kernel
    """What was asked for."""
    chosen: Kernel
    """The same with the options that are the fastest here; it is what is compiled."""
    source: str

    @cached_property
    def wanted(self) -> sharing.Wanted:
        """What to look for, and where."""
        name = self.chosen.name
        made_for = ("cpu", emitters.toolchain(), processors.key())
        parts = (*made_for, self.chosen.description, self.source)
        key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
        root = kernelfiles.directory()
        path = root and root / "kernels" / emitters.folder_name() / f"{name}-{key}.code"
        return sharing.Wanted(name, key, path)

    def describe(self) -> None:
        """Say in the folder of the machine code what it is for, if it is there."""
        if self.wanted.is_kept and self.wanted.path is not None:
            with suppress(OSError):  # Whoever has written the code has said what is wrong.
                kernelfiles.describe(self.wanted.path.parent, emitters.made_with())

    def load(self, code: bytes) -> CompiledKernel:
        """Return the kernel of machine code, which nothing of numba is needed for.

        Raises
        ------
        gpusched.backends.native.UnknownCodeError
            If it cannot run here.
        """
        found = native.load(code, self.chosen.name)
        return CompiledKernel(self.kernel, found.call, found)

    def compile(self) -> bytes | None:
        """Return the machine code, made by numba; None if it is good in one process only."""
        from gpusched.backends import cpu

        return cpu.compile_code(self.chosen, self.source, self._registered())

    def made_of(self, code: bytes | None) -> CompiledKernel:
        """Return the kernel of what `compile` returned."""
        if code is not None:
            return self.load(code)
        from gpusched.backends import cpu

        call = cpu.compile_here(self.chosen, self.source, self._registered())
        return CompiledKernel(self.kernel, call)

    def build(self) -> tuple[CompiledKernel, bytes | None]:
        """Return the kernel, compiled now, and its machine code unless it is this process's."""
        code = service.made_by_anybody(self.chosen, self.wanted, self._compiler)
        return self.made_of(code), code

    def _compiler(self) -> Callable[[], bytes | None]:
        import gpusched.backends.cpu  # noqa: F401  half a second

        return self.compile

    def _registered(self) -> str:
        """Return a name of the source for errors, under which tracebacks show it."""
        return register(source_name(self.chosen), self.source)


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
    prepared = PreparedKernel(kernel, kernel, hostloops.source(kernel))
    if prepared.wanted.key != key:
        raise OtherToolchainError("another version of gpusched, numba or Python, or other settings")
    code = prepared.compile()
    if code is None:
        raise OtherToolchainError("code that is good in one process only")
    return code


def prepare(kernel: Kernel) -> PreparedKernel:
    """Return a kernel with its source; nothing is compiled, read or written."""
    chosen = tuned.chosen(kernel, tuned.here())
    return PreparedKernel(kernel, chosen, hostloops.source(chosen))


def source_name(kernel: Kernel) -> str:
    """Return what tracebacks call a kernel's source."""
    return f"<gpusched {kernel.name}>"


def reference(kernel: Kernel) -> CompiledKernel:
    """Return `kernel` as plain Python runs it: slow, and the definition of what it means."""
    from gpusched.backends import python

    text = hostloops.source(kernel)
    filename = register(source_name(kernel), text)
    return CompiledKernel(kernel, python.compile_kernel(kernel, text, filename))


kernels = KernelCache()
"""This process's kernels."""
