"""The folder of compiled kernels that the processes of a test run share, and the next run finds.

Its name has a digest of all that compiled code depends on, so that no test passes by a kernel
which the present code would not make.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path

from gpusched.store import emitters

_KEPT_SECONDS = 3 * 86400


def folder(root: Path) -> Path:
    """Return the folder for the code under `root`, and remove those that nobody used lately."""
    base = root / ".pytest_cache" / "kernels"
    own = base / digest(root)
    own.mkdir(parents=True, exist_ok=True)
    own.touch()
    for other in base.iterdir():
        if time.time() - other.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return own


def digest(root: Path) -> str:
    """Return a digest of the sources that write and compile kernels, and of their compilers."""
    found = hashlib.blake2b(sys.version.encode(), digest_size=8)
    for package in ("llvmlite", "numba", "numpy"):
        found.update(version(package).encode())
    found.update(emitters.digest_of(root / "gpusched").encode())
    return found.hexdigest()
