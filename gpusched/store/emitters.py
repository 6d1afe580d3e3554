"""What machine code depends on besides its kernel: our code, compilers, the processor."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import gpusched
from gpusched.store import processors

PACKAGES = (
    "adapters/numba.py",
    "record",
    "plan",
    "emit",
    "backends",
    "store",
    "vectormath",
    "editing",
    "kernels",
)
"""All code that writes, rewrites, schedules or compiles kernels is in these folders and modules."""


@lru_cache(maxsize=1)
def digest() -> str:
    """Return a digest of the source of these packages, as this process found it.

    It is part of every key under which compiled kernels are kept, so that no process uses machine
    code that its own code would not make.

    Notes
    -----
    Thread-safe. Takes 4 ms, once per process.
    """
    return digest_of(Path(__file__).parents[1])


def digest_of(root: Path) -> str:
    """Return a digest of the names and texts of the modules of `PACKAGES` under a folder."""
    found = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        for path in sorted(_modules(str(root / package))):
            with open(path, "rb") as file:
                text = file.read()
            place = path[len(str(root)) + 1 :].replace(os.sep, "/")
            found.update(f"{place} {len(text)} ".encode() + text)
    return found.hexdigest()


def _modules(folder: str) -> Iterator[str]:
    """Yield the paths of the modules under a folder, in any order; `rglob` takes twice as long."""
    if folder.endswith(".py"):
        yield folder
    for where, _, names in os.walk(folder):
        yield from (os.path.join(where, name) for name in names if name.endswith(".py"))


HOST = ("numba", "llvmlite")
"""Packages that compile for the CPU."""
CUDA = ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc", "llvmlite")
"""Packages that compile for GPUs."""


@lru_cache(maxsize=8)
def toolchain(packages: tuple[str, ...] = HOST) -> str:
    """Return a short digest of all that machine code depends on but the kernel and its target.

    Parameters
    ----------
    packages
        What compiles; a version that is not installed counts as one.
    """
    versions = [_version(package) for package in packages]
    parts = [gpusched.__version__, *versions, sys.version, _libc(), digest()]
    return hashlib.blake2b("|".join(parts).encode(), digest_size=6).hexdigest()


def _version(package: str) -> str:
    try:
        return processors.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _libc() -> str:
    """Return the version of the C library, whose functions kernels call."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        return ""  # Not glibc.


def folder_name() -> str:
    """Return the name of the folder of what is compiled here for this processor."""
    return f"{toolchain()}-{processors.key()}"


def made_with() -> dict[str, str]:
    """Return the versions and the processor of what is compiled here, for people."""
    return {
        "gpusched": gpusched.__version__,
        "python": sys.version.split()[0],
        "numba": _version("numba"),
        "target": processors.name(),
    }
