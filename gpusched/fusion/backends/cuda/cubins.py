"""Cubins by source text and kind of GPU; kept on disk and shared as the CPU's code is."""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from collections.abc import Callable
from functools import lru_cache

import gpusched
from gpusched.fusion import emitters
from gpusched.fusion.backends.cuda.compiler import Compiled
from gpusched.fusion.cache import directory
from gpusched.fusion.kernel import EXACT
from gpusched.fusion.sharing import Origin, Wanted, obtain

_PACKAGES = ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc", "llvmlite")


@lru_cache(maxsize=1)
def toolchain() -> str:
    """Return a digest of everything but the source and the kind of GPU that a cubin depends on."""
    parts = [gpusched.__version__, sys.version, emitters.digest()]
    for package in _PACKAGES:
        try:
            parts.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            parts.append("none")
    return hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()


def wanted(name: str, text: str, cc: tuple[int, int], mathematics: str = EXACT) -> Wanted:
    """Return what the cubin of a source text is known by, and where it is kept."""
    parts = ("cuda", toolchain(), f"sm_{cc[0]}{cc[1]}", mathematics, text)
    key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
    root = directory()
    path = root and root / "cubins" / toolchain() / f"{name}-sm_{cc[0]}{cc[1]}-{key}.cubin"
    return Wanted(name, key, path)


def cached(
    name: str,
    text: str,
    cc: tuple[int, int],
    build: Callable[[], Compiled],
    mathematics: str = EXACT,
) -> tuple[Compiled, bool]:
    """Return the machine code of `text`, and whether it had to be built.

    A file that is missing, cut short or changed is built again.
    """

    def load(cubin: bytes) -> Compiled:
        return Compiled(name, cc, cubin)

    def make() -> tuple[Compiled, bytes]:
        compiled = build()
        return compiled, compiled.cubin

    compiled, origin = obtain(wanted(name, text, cc, mathematics), load, make)
    return compiled, origin is Origin.COMPILED
