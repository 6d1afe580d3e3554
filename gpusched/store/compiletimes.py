"""How long compilations take on this machine, learned from those that there have been."""

from __future__ import annotations

import json
import platform
import threading
from pathlib import Path

from gpusched.dataclass import dataclass
from gpusched.store import codefiles, kernelfiles

FILE = "compile-times.json"
"""In the cache directory; by the machine's name, since machines may share that."""

DEFAULT = 1.0
"""Times what is expected of a kernel, until something has been learned here."""

_NEWEST = 0.1
"""Weight of the last compilation at least, so that a busy hour is forgotten."""


@dataclass(frozen=True)
class Learned:
    """What is known of a machine."""

    factor: float = DEFAULT
    """Seconds that compilations take, in times of what is expected where nothing is known."""
    compilations: int = 0

    def after(self, ratio: float) -> Learned:
        """Return what is known after one more compilation.

        Parameters
        ----------
        ratio
            Its seconds, in times of what was expected of it.

        Examples
        --------
        >>> from gpusched.store.compiletimes import Learned
        >>> Learned().after(4.0).after(1.0)
        Learned(factor=2.0, compilations=2)
        """
        count = self.compilations + 1
        weight = max(1 / count, _NEWEST)
        # A mean of logarithms: one that took ten times as long counts as one that took a tenth.
        return Learned(self.factor ** (1 - weight) * ratio**weight, count)


_lock = threading.Lock()
_read: dict[Path | None, Learned] = {}


def factor() -> float:
    """Return what expected seconds are multiplied by on this machine."""
    return _known(kernelfiles.directory()).factor


def learn(expected: float, seconds: float) -> None:
    """Note how long a compilation has taken.

    Parameters
    ----------
    expected
        Seconds that were expected where nothing is known.
    seconds
        Of the processor's time.
    """
    if seconds <= 0:
        return
    with _lock:
        root = kernelfiles.directory()
        found = _read[root] = _known(root).after(seconds / expected)
    if root is not None:
        _write(root / FILE, found)


def _known(root: Path | None) -> Learned:
    if root not in _read:
        entry = _entries(root and root / FILE).get(platform.node())
        _read[root] = Learned(*entry) if entry else Learned()
    return _read[root]


def _entries(path: Path | None) -> dict[str, tuple[float, int]]:
    """Return what a file says, by machine; nothing if it is damaged, as it is made again soon."""
    content = codefiles.read(path) if path else None
    try:
        told = json.loads(content or b"{}")
        return {str(k): (float(factor), int(count)) for k, (factor, count) in told.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, found: Learned) -> None:
    """Keep what has been learned; what another process writes at the same time may be lost."""
    entries = _entries(path) | {platform.node(): (found.factor, found.compilations)}
    codefiles.write_or_warn(path, json.dumps(entries, indent=1).encode())
