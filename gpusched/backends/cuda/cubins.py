"""Cubins by source text and kind of GPU; kept on disk and shared as the CPU's code is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from gpusched.backends.cuda.compiler import Compiled
from gpusched.emit.kernel import EXACT
from gpusched.store import kernelfiles
from gpusched.store.emitters import CUDA, toolchain
from gpusched.store.sharing import ObtainedFrom, Wanted, obtain


def wanted(name: str, text: str, cc: tuple[int, int], mathematics: str = EXACT) -> Wanted:
    """Return what the cubin of a source text is known by, and where it is kept."""
    parts = ("cuda", toolchain(CUDA), f"sm_{cc[0]}{cc[1]}", mathematics, text)
    key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
    root = kernelfiles.directory()
    path = root and root / "cubins" / toolchain(CUDA) / f"{name}-sm_{cc[0]}{cc[1]}-{key}.cubin"
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
    return compiled, origin is ObtainedFrom.COMPILED
