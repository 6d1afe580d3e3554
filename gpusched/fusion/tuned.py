"""What has been found to be the fastest for a kernel on a device, kept in a file.

It is looked at when a kernel is compiled, and never afterwards.
"""

from __future__ import annotations

import json
import threading
import warnings
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusched import config
from gpusched.fusion import choices, codefiles, emitters, kernelfiles, kernelstore, sharing
from gpusched.fusion.backends import processors
from gpusched.fusion.kernel import Kernel, Options
from gpusched.fusion.statistics import updating
from gpusched.fusion.turns import turn

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


_lock = threading.Lock()
_read: dict[Path, tuple[tuple[int, int], dict[str, Choice]]] = {}
_generation = 0


def generation() -> int:
    """Return a number that changes when this process remembers or forgets something."""
    return _generation


@lru_cache(maxsize=1)
def here() -> Place:
    """Return this machine's processor."""
    return Place("cpu", f"{processors.name()} {processors.key()}", emitters.toolchain())


def chosen(kernel: Kernel, place: Place) -> Kernel:
    """Return a kernel with what is chosen for it: remembered, or for all kernels, or nothing.

    Raises
    ------
    ChoiceError
        If the configuration chooses what cannot be.
    """
    if kernel.options != Options():
        return kernel
    setting = config.get("tuning.options")
    found = choices.applied(kernel, choices.configured(setting, place.target), place.target)
    if config.get("tuning.remembered"):
        best = find(kernel, place)
        if best is not None:
            found = best.options
    return replace(kernel, options=found) if found != Options() else kernel


def find(kernel: Kernel, place: Place) -> Choice | None:
    """Return what is remembered of a kernel, if anything."""
    path = _path()
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
    try:
        # Not the other way round: no thread holds a lock while it waits for another process.
        with turn(path, sharing.patience()), _lock:
            entries = dict(_entries(path))
            entries.pop(_key(kernel, place), None)
            if choice is not None:
                entries[_key(kernel, place)] = choice
            content = {key: asdict(each) for key, each in sorted(entries.items())}
            codefiles.write(path, json.dumps(content, indent=1).encode())
    except OSError as error:
        codefiles.warn_unwritable(path, error)
        return False
    _generation += 1
    kernelstore.forget(kernel)
    return True


def _path() -> Path | None:
    root = kernelfiles.directory()
    return root and root / FILE


def _key(kernel: Kernel, place: Place) -> str:
    return "|".join([kernel.digest, place.target, place.device, place.toolchain])


def _entries(path: Path) -> dict[str, Choice]:
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


def _parsed(path: Path) -> dict[str, Choice]:
    content = codefiles.read(path)
    try:
        told = json.loads(content or b"{}")
        return {key: _choice(key, entry) for key, entry in told.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
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
    _, target, _, _ = key.split("|")
    options = Options(**entry["options"])
    choices.configured({target: {k: v for k, v in asdict(options).items() if v}}, target)
    return Choice(str(entry["kernel"]), options, float(entry["ratio"]), str(entry["date"]))
