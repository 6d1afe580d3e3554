"""What is in effect for programs: how they are to run, by settings, and users' versions of kernels.

It is read where a graph is optimised, and goes with its programs. A program computes with the same
settings and versions wherever and whenever it runs; one with others is another program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from gpusched import config, forks
from gpusched.backends.devices import Device
from gpusched.dataclass import dataclass
from gpusched.emit import choices
from gpusched.emit.editions import EditionError
from gpusched.emit.kernel import EXACT, Edition, Kernel, Options, unchecked
from gpusched.plan.tiers import ANY, FUSED
from gpusched.quantities import read_bytes
from gpusched.store import tuned
from gpusched.store.handles import Handle

NUMPY, DRAWN = "numpy", "device"
"""Random numbers are NumPy's, or drawn by the GPU."""
AUTO, OFF, REQUIRE = "auto", "off", "require"
"""On the device where that pays, never, or always where there is something to gain."""

_FLOATING = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Bounds:
    """What of a task is worth a kernel: settings, by their defaults."""

    elements: int = 4096
    """``minimum-elements``: of the largest chunk, and of what is made of it."""
    operations: int = 2
    """``minimum-operations``: of a task."""
    single: int = 4 << 20
    """``single-operation-bytes``; 0 where no single operation becomes a kernel."""
    most: int = 256
    """``maximum-operations``: of a kernel."""


DEFAULT = Bounds()


def bounds() -> Bounds:
    """Return what the configuration has here.

    Raises
    ------
    ValueError
        If ``gpusched.fusion.single-operation-bytes`` is not a number of bytes.

    Examples
    --------
    >>> import dask
    >>> from gpusched.plan.overrides import bounds
    >>> with dask.config.set({"gpusched.fusion.minimum-operations": 3}):
    ...     bounds()
    Bounds(elements=4096, operations=3, single=4194304, most=256)
    """
    return Bounds(
        config.get("fusion.minimum-elements"),
        config.get("fusion.minimum-operations"),
        read_bytes(
            "gpusched.fusion.single-operation-bytes",
            config.get("fusion.single-operation-bytes") or 0,
        ),
        config.get("fusion.maximum-operations"),
    )


def applied(kernel: Kernel, mode: str) -> Kernel:
    """Return a kernel whose mathematics is so exact; the same one where that is no difference."""
    if mode == EXACT or not any(s.dtype in _FLOATING for s in kernel.statements):
        return kernel
    return replace(kernel, mathematics=mode)


class OverrideError(RuntimeError):
    """A user's version of a kernel was to run, and cannot; nothing else runs in its place."""


@dataclass(frozen=True)
class Override:
    """A user's version of one kernel, as processes send it to each other.

    It also holds for kernels that compute the same on arrays with another layout in memory: chunks
    at an edge, or slices of larger arrays, or such as came from another process.

    Notes
    -----
    Immutable; equal ones compute the same.
    """

    digest: str
    """Of the kernel that is replaced."""
    computation: str
    """Of what it computes."""

    def version(self, original: Kernel) -> Kernel:
        """Return the kernel that runs instead of `original`."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What differs between two overrides of a kernel; the same in every process."""
        raise NotImplementedError


@dataclass(frozen=True)
class TextOverride(Override):
    """A source text instead of the one that is generated.

    Kernels on arrays with another layout in memory have loops of their own, and take the other
    functions.
    """

    edition: Edition

    def version(self, original: Kernel) -> Kernel:
        """Return the kernel with this text as its source."""
        target = self.edition.target if original.digest == self.digest else "none"
        edition = replace(self.edition, target=target)
        return replace(unchecked(original), original=original, edition=edition)

    @property
    def identity(self) -> str:
        """What identifies this version."""
        return repr(self)


@dataclass(frozen=True)
class Overrides:
    """What is in effect for a program, the last version last; at most one of each kernel.

    Notes
    -----
    Immutable.
    """

    found: tuple[Override, ...] = ()
    mathematics: str = EXACT
    """Mode of all kernels, users' versions included."""
    tier: str = ANY
    """Whether all chunks are computed by kernels, or all as NumPy computes them."""
    device: str = AUTO
    """Whether chunks of NumPy programs are computed on a worker's GPU."""
    bounds: Bounds = DEFAULT
    """What of a task is worth a kernel; chunks have the same values whatever it is."""
    random: str = NUMPY
    """Who draws random numbers."""
    options: tuple[tuple[str, Options], ...] = ()
    """How kernels of each target are compiled of which nothing is remembered."""

    def __bool__(self) -> bool:
        return bool(self.found) or not self.said.keys() <= {"bounds"}

    @property
    def said(self) -> dict[str, Any]:
        """What is not as it is by default, besides the versions, by its name."""
        named = {each.name: (getattr(self, each.name), each.default) for each in fields(self)[1:]}
        return {name: value for name, (value, default) in named.items() if value != default}

    def __reduce__(self) -> Any:
        # Few bytes, since they go with each program.
        return "NONE" if self is NONE else (_restored, (self.found, self.said))

    @property
    def waits(self) -> bool:
        """Whether kernels are waited for: NumPy does not compute what users' versions do."""
        return bool(self.found) or self.tier == FUSED or self.device == REQUIRE

    @cached_property
    def token(self) -> str:
        """A short digest; the same in every process."""
        parts = [f"{each.digest} {each.identity}" for each in self.found]
        parts += [f"{name} {value}" for name, value in self.said.items()]
        text = "|".join(parts)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def of(self, kernel: Kernel) -> Override | None:
        """Return what replaces a kernel, if anything does."""
        same = [each for each in self.found if each.computation == kernel.computation]
        exact = [each for each in same if each.digest == kernel.digest]
        found = exact or same
        return found[-1] if found else None

    def on(self, device: Device) -> Device:
        """Return a device that compiles users' versions, with errors of their own."""
        if not self:
            return device

        def compile_version(kernel: Kernel) -> Handle:
            override = self.of(kernel)
            if override is None:
                return device.compile(self._applied(kernel, device))
            try:
                found = device.compile(self._applied(override.version(kernel), device))
                found.wait()
                return found
            except MemoryError:
                raise
            except Exception as error:
                # Whatever it is: the original must not run instead.
                raise OverrideError(refused(kernel, device.name, error)) from error

        return replace(device, compile=compile_version)

    def _applied(self, kernel: Kernel, device: Device) -> Kernel:
        """Return a kernel as it is compiled for a device."""
        kernel = applied(kernel, self.mathematics)
        for target, options in self.options:
            if target == device.name and tuned.find(kernel, device.place()) is None:
                return replace(kernel, options=choices.applied(kernel, options, target))
        return kernel


def _restored(found: tuple[Override, ...], said: dict[str, Any]) -> Overrides:
    return Overrides(found, **said)


def refused(original: Kernel, target: str, error: Exception) -> str:
    """Return what is said of a version that does not compile."""
    told = str(error) if isinstance(error, EditionError) else f"{type(error).__name__}: {error}"
    return f"your version of kernel {original.name} cannot be compiled for {target}: {told}"


NONE = Overrides()
"""The overrides of most programs."""

_applied: tuple[Override, ...] = ()
_scoped: ContextVar[tuple[Override, ...]] = ContextVar("gpusched-overrides", default=())
_lock = forks.lock()


def active() -> Overrides:
    """Return what is in effect where this is called; the last of a kernel's versions comes last.

    Examples
    --------
    >>> from gpusched.plan.overrides import active
    >>> bool(active())
    False
    """
    found = _applied + _scoped.get()
    mathematics, tier = config.word("fusion.mathematics"), config.word("fusion.tier")
    options = tuple(sorted(choices.configured(config.get("tuning.options")).items()))
    said = Overrides((), mathematics, tier, config.word("device"), bounds(), config.word("random"),
                     options)  # fmt: skip
    if not found and said == NONE:
        return NONE
    last: dict[str, Override] = {}
    for each in found:
        last.pop(each.digest, None)
        last[each.digest] = each
    return replace(said, found=tuple(last.values()))


def apply(override: Override) -> None:
    """Let a version run in the whole process from now on, after those that are applied already."""
    global _applied
    with _lock:
        _applied = (*_applied, override)


def withdraw(override: Override) -> None:
    """Undo the last `apply` of a version; nothing happens if there was none."""
    global _applied
    with _lock:
        _applied = _without_last(_applied, lambda each: each is override)


def enter(override: Override) -> None:
    """Let a version run for what this thread (or asynchronous task) computes from now on."""
    _scoped.set((*_scoped.get(), override))


def leave(digest: str) -> None:
    """Undo the last `enter` of a version of a kernel; nothing happens if there was none."""
    _scoped.set(_without_last(_scoped.get(), lambda each: each.digest == digest))


def _without_last(found: tuple[Override, ...],
                  wanted: Callable[[Override], bool]) -> tuple[Override, ...]:  # fmt: skip
    last = max([number for number, each in enumerate(found) if wanted(each)], default=len(found))
    return found[:last] + found[last + 1 :]
