"""What has been found to be the fastest for a kernel on a device, kept in a file.

It is looked at when a kernel is compiled, and never afterwards.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusched import config, forks
from gpusched.dataclass import dataclass
from gpusched.emit import choices
from gpusched.emit.kernel import Kernel, Options
from gpusched.store import (
    codefiles,
    emitters,
    handles,
    kernelfiles,
    processors,
)
from gpusched.store.statistics import updating

FILE = "tuning.json"
"""In the cache directory."""


@dataclass(frozen=True)
class Place:
    """Where a kernel is compiled for; what is fastest there need not be elsewhere."""

    target: str
    """``"cpu"`` or ``"cuda"``."""
    device: str
    """The GPU's name, or the kind of processor."""
    toolchain: str
    """Digest of what machine code depends on besides."""


@dataclass(frozen=True)
class Choice:
    """What is remembered of a kernel in one place."""

    kernel: str
    """Its name."""
    options: Options
    ratio: float
    """Its time, in times that of the default."""
    date: str
    """When it was measured, in UTC."""


Choices = dict[str, Choice]
"""By kernel and place, as `_key` joins them."""

_KEY = re.compile(r"[0-9a-f]{16}\|(?:cpu|cuda)\|[^|]+\|[^|]+")
_lock = forks.lock()
_read: dict[Path, tuple[tuple[int, int], Choices]] = {}
_generation = 0


def generation() -> int:
    """Return a number that changes when this process remembers or forgets something."""
    return _generation


@lru_cache(maxsize=1)
def here() -> Place:
    """Return this machine's processor."""
    return Place("cpu", f"{processors.name()} {processors.key()}", emitters.toolchain())


def chosen(kernel: Kernel, place: Place) -> Kernel:
    """Return a kernel with what is remembered to be the fastest, unless it has been chosen."""
    best = find(kernel, place) if kernel.options == Options() else None
    return kernel if best is None else replace(kernel, options=best.options)


def find(kernel: Kernel, place: Place) -> Choice | None:
    """Return what is remembered of a kernel, if anything, and if that is to be heeded."""
    path = _path() if config.get("tuning.remembered") else None
    return _entries(path).get(_key(kernel, place)) if path is not None else None


def remembered(kernel: Kernel) -> dict[str, Choice]:
    """Return all that is remembered of a kernel, by target and device."""
    path = _path()
    if path is None:
        return {}
    found = {}
    for key, choice in _entries(path).items():
        digest, target, device, _ = key.split("|")
        if digest == kernel.digest:
            found[f"{target} {device}"] = choice
    return found


def remember(kernel: Kernel, place: Place, choice: Choice | None) -> bool:
    """Keep what is the fastest, or nothing any more; return whether there is a place to keep it."""
    global _generation
    path = _path()
    if path is None:
        return False
    key = _key(kernel, place)

    def changed(entries: Choices) -> Choices:
        others = {name: each for name, each in entries.items() if name != key}
        return others if choice is None else others | {key: choice}

    try:
        _change(path, changed)
    except OSError as error:
        kernelfiles.warn_unwritable(path, error)
        return False
    _generation += 1
    handles.forget(kernel)
    return True


def add(path: Path, given: Choices) -> int:
    """Write choices of another machine into a file, beside its own; return how many are new.

    What was measured here stays.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    new = given.keys() - _entries(path).keys()
    if new:
        _change(path, lambda entries: given | entries)
    return len(new)


def _change(path: Path, change: Callable[[Choices], Choices]) -> None:
    """Replace a file's content, while no other process does."""
    # Not the other way round: no thread holds a lock while it waits for another process.
    with _alone(path), _lock:
        codefiles.write(path, encoded(change(_entries(path))))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let no other process change a file of a folder meanwhile.

    Where a file system has no locks, what another process writes at the same time may be lost.
    """
    codefiles.folder_for(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
        # A child forked meanwhile has the folder open, too; closing alone would leave it the lock.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)
    finally:
        os.close(folder)


def encoded(entries: Choices) -> bytes:
    """Return choices as a file has them; equal ones are equal bytes."""
    content = {key: asdict(each) for key, each in sorted(entries.items())}
    return json.dumps(content, indent=1).encode()


def decoded(content: bytes) -> Choices:
    """Return the choices in what `encoded` returned, each of which can be made.

    Raises
    ------
    ValueError
        If it is something else; the message says what.
    """
    try:
        told = json.loads(content)
        return {key: _choice(key, entry) for key, entry in told.items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(repr(error)) from error


def is_usable(key: str) -> bool:
    """Return whether a choice is for this processor, or for a GPU, and for these versions."""
    _, target, device, toolchain = key.split("|")
    if target == "cpu":
        return Place(target, device, toolchain) == here()
    return toolchain == emitters.toolchain(emitters.CUDA)


def _path() -> Path | None:
    root = kernelfiles.directory()
    return root and root / FILE


def _key(kernel: Kernel, place: Place) -> str:
    return "|".join([kernel.digest, place.target, place.device, place.toolchain])


def _entries(path: Path) -> Choices:
    """Return the file's content, read again when it has changed."""
    try:
        state = path.stat()
    except OSError:
        return {}
    stamp = state.st_mtime_ns, state.st_size
    known = _read.get(path)
    if known is None or known[0] != stamp:
        known = _read[path] = stamp, _parsed(path)
    return known[1]


def _parsed(path: Path) -> Choices:
    try:
        return decoded(codefiles.read(path) or b"{}")
    except ValueError as error:
        with updating() as counters:
            counters.tunings_damaged += 1
        warnings.warn(
            f"{path} is damaged ({error}), so that kernels are compiled as if nothing had been "
            "tuned; gpusched.tune writes it again",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}


def _choice(key: str, entry: dict[str, Any]) -> Choice:
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"a kernel named {key!r:.100}")
    target = key.split("|")[1]
    options = Options(**entry["options"])
    choices.configured({target: {k: v for k, v in asdict(options).items() if v}})
    return Choice(str(entry["kernel"]), options, float(entry["ratio"]), str(entry["date"]))
