"""One digest of all of gpusched's code that decides what a kernel's machine code is."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

PACKAGES = ("fusion", "kernels")
"""Whatever writes, rewrites, schedules or compiles kernels lies in these; nothing is left out."""


@lru_cache(maxsize=1)
def digest() -> str:
    """Return a digest of the source of these packages, as this process found it.

    It is part of every key under which compiled kernels are kept, so that no process uses machine
    code that its own code would not make.

    Notes
    -----
    Thread-safe. Takes 3 ms, once per process.
    """
    return digest_of(Path(__file__).parents[1])


def digest_of(root: Path) -> str:
    """Return a digest of the names and texts of the modules of `PACKAGES` under a folder."""
    found = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_bytes()
            found.update(f"{path.relative_to(root).as_posix()} {len(text)} ".encode() + text)
    return found.hexdigest()
