"""Users' versions of kernels that are in effect: in this process, and in the programs it sends.

What is in effect is read when a graph is optimised, and goes with its programs. A program computes
with the same versions wherever and whenever it runs; one without is another program.
"""

from __future__ import annotations

import hashlib
import threading
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property

from gpusched.fusion.cache import CompiledKernel
from gpusched.fusion.devices import Device
from gpusched.fusion.editions import EditionError
from gpusched.fusion.kernel import Edition, Kernel


class OverrideError(RuntimeError):
    """A user's version of a kernel was to run, and cannot; nothing else runs in its place."""


@dataclass(frozen=True)
class Override:
    """A user's version of one kernel, as processes send it to each other.

    Notes
    -----
    Immutable; equal ones compute the same.
    """

    digest: str
    """Of the kernel that is replaced."""

    def version(self, original: Kernel) -> Kernel:
        """Return the kernel that runs in the place of `original`."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What differs between two overrides of a kernel; the same in every process."""
        raise NotImplementedError


@dataclass(frozen=True)
class TextOverride(Override):
    """A source text in the place of the one that is generated."""

    edition: Edition

    def version(self, original: Kernel) -> Kernel:
        return replace(original, original=original, edition=self.edition)

    @property
    def identity(self) -> str:
        return repr(self)


@dataclass(frozen=True)
class Overrides:
    """What is in effect for a program; at most one version of a kernel.

    Notes
    -----
    Immutable.
    """

    found: tuple[Override, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.found)

    @cached_property
    def token(self) -> str:
        """A short digest; the same in every process."""
        text = "|".join(f"{each.digest} {each.identity}" for each in self.found)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def version(self, kernel: Kernel) -> Kernel:
        """Return what runs in the place of a kernel: itself, mostly."""
        for override in self.found:
            if override.digest == kernel.digest:
                return override.version(kernel)
        return kernel

    def on(self, device: Device) -> Device:
        """Return a device that compiles users' versions, with errors of their own."""
        if not self.found:
            return device

        def compile_version(kernel: Kernel) -> CompiledKernel:
            version = self.version(kernel)
            if version is kernel:
                return device.compile(kernel)
            try:
                return device.compile(version)
            except MemoryError:
                raise
            except Exception as error:
                raise OverrideError(refused(version, device.name, error)) from error

        return replace(device, compile=compile_version)


def refused(version: Kernel, target: str, error: Exception) -> str:
    """Return what is said of a version that does not compile."""
    assert version.original is not None
    told = str(error) if isinstance(error, EditionError) else f"{type(error).__name__}: {error}"
    return f"your version of kernel {version.original.name} cannot be compiled for {target}: {told}"


NONE = Overrides()
"""The overrides of most programs."""

_applied: tuple[Override, ...] = ()
_scoped: ContextVar[tuple[Override, ...]] = ContextVar("gpusched-overrides", default=())
_lock = threading.Lock()


def active() -> Overrides:
    """Return what is in effect where this is called; the last of a kernel's versions counts.

    Examples
    --------
    >>> from gpusched.fusion.overrides import active
    >>> bool(active())
    False
    """
    found = _applied + _scoped.get()
    return Overrides(tuple({each.digest: each for each in found}.values())) if found else NONE


def apply(override: Override) -> None:
    """Let a version run in the whole process from now on, after those that are applied already."""
    global _applied
    with _lock:
        _applied = (*_applied, override)


def withdraw(override: Override) -> None:
    """Undo the last `apply` of a version; nothing happens if there was none."""
    global _applied
    with _lock:
        found = list(_applied)
        for number in reversed(range(len(found))):
            if found[number] is override:
                del found[number]
                break
        _applied = tuple(found)


def enter(override: Override) -> None:
    """Let a version run for what this thread (or asynchronous task) computes from now on."""
    _scoped.set((*_scoped.get(), override))


def leave(digest: str) -> None:
    """Undo the last `enter` of a version of a kernel; nothing happens if there was none."""
    found = list(_scoped.get())
    for number in reversed(range(len(found))):
        if found[number].digest == digest:
            del found[number]
            break
    _scoped.set(tuple(found))
