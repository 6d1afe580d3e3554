"""Machine code kept on disk, beside the CPU's kernels: a file is a checksum and a cubin."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from gpusched.fusion.backends.cuda import skeleton
from gpusched.fusion.backends.cuda.compiler import Compiled
from gpusched.fusion.cache import directory

CHECKSUM = 16
"""Bytes at the start of a file."""
_PACKAGES = ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc", "llvmlite")


@lru_cache(maxsize=1)
def toolchain() -> str:
    """Return a digest of everything but the source and the kind of GPU that a cubin depends on."""
    parts = [str(skeleton.VERSION)]
    for package in _PACKAGES:
        try:
            parts.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            parts.append("none")
    for name in ("compiler", "device", "vectorload"):
        parts.append((Path(__file__).parent / f"{name}.py").read_text())
    return hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()


def path_of(name: str, text: str, cc: tuple[int, int]) -> Path | None:
    """Return where the cubin of a source text is kept, or None if nothing is."""
    root = directory()
    if root is None:
        return None
    digest = hashlib.blake2b((toolchain() + text).encode(), digest_size=8).hexdigest()
    return root / "cubins" / f"{name}-sm_{cc[0]}{cc[1]}-{digest}.cubin"


def cached(
    name: str, text: str, cc: tuple[int, int], build: Callable[[], Compiled]
) -> tuple[Compiled, bool]:
    """Return the machine code of `text`, and whether it had to be built.

    A file that is missing, cut short or changed is built again.
    """
    path = path_of(name, text, cc)
    if path is not None:
        cubin = _read(path)
        if cubin is not None:
            return Compiled(name, cc, cubin), False
    compiled = build()
    if path is not None:
        try:
            _write(path, compiled.cubin)
        except OSError as error:
            warnings.warn(
                f"gpusched cannot keep compiled kernels in {path.parent}: "
                f"{error.strerror or error}. They are compiled again in each process. Free space "
                "there, or set gpusched.fusion.cache-directory to another place (null for none).",
                RuntimeWarning,
                stacklevel=2,
            )
    return compiled, True


def _checksum(cubin: bytes) -> bytes:
    return hashlib.blake2b(cubin, digest_size=CHECKSUM).digest()


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    cubin = content[CHECKSUM:]
    return cubin if content[:CHECKSUM] == _checksum(cubin) else None


def _write(path: Path, cubin: bytes) -> None:
    """Write a file so that no reader ever sees part of it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(cubin) + cubin)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
