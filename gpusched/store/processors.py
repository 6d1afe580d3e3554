"""What is known of the processor that code is made for, and of what changes machine code.

Nothing here loads numba, which takes half a second: its settings are read where it reads them. LLVM
is asked once for each machine and cache directory: to load it takes as long as dozens of kernels.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import os
import platform
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusched.store import codefiles, kernelfiles

SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO",
            "ENABLE_PROFILING", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES")  # fmt: skip
"""Settings of numba's that change machine code, as its variables of the environment have them
behind ``NUMBA_``."""

_FILE = Path(".numba_config.yaml")
"""Where numba looks for its settings, too, in the current directory."""


FILE = "processors.json"
"""In the cache directory: what LLVM has said of processors."""

_CPUINFO = Path("/proc/cpuinfo")
"""Where Linux says what processors there are."""
_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU implementer",
           "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features")  # fmt: skip
"""What of it distinguishes kinds of processors."""


def name() -> str:
    """Return LLVM's name of the processor that code is made for.

    ``NUMBA_CPU_NAME`` names another kind than this machine's.
    """
    return os.environ.get("NUMBA_CPU_NAME") or _described()[0]


def features() -> str:
    """Return LLVM's list of the features of this machine's processor."""
    return _described()[1]


@lru_cache(maxsize=1)
def _described() -> tuple[str, str]:
    """Return LLVM's name and features of this machine's processor, remembered if possible."""
    kind, root = _kind(), kernelfiles.directory()
    path = root / FILE if root and kind else None
    known = codefiles.entries(path, _entry)
    if kind not in known:
        known[kind] = _from_llvm()
        if path is not None:
            kernelfiles.write_entries(path, known)
    return known[kind]


def _kind() -> str:
    """Return a digest of what Linux says of the first processor, and of LLVM's version.

    Empty if that does not say what features the processor has, or LLVM's version is not known.
    """
    found: dict[str, str] = {}
    try:
        parts = [version("llvmlite")]
        with _CPUINFO.open() as lines:
            for line in itertools.takewhile(str.strip, lines):
                field, _, value = line.partition(":")
                found[field.strip()] = value.strip()
    except (OSError, importlib.metadata.PackageNotFoundError):
        return ""
    if not {"flags", "Features"} & found.keys():
        return ""
    parts += [found.get(field, "") for field in _FIELDS]
    return hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=16)
def version(package: str) -> str:
    """Return the version of an installed package; a file is read for it, once.

    The lines that say so come first: to parse the description behind them takes 2 ms.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If it is not installed.
    """
    found = importlib.metadata.distribution(package)
    head = (found.read_text("METADATA") or "").partition("\n\n")[0]
    said = [line for line in head.splitlines() if line.startswith("Version: ")]
    return said[0].removeprefix("Version: ").strip() if said else found.version


def _from_llvm() -> tuple[str, str]:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten())


def _entry(told: Any) -> tuple[str, str]:
    name, features = told
    return str(name), str(features)


@lru_cache(maxsize=1)
def key() -> str:
    """Return a digest of the kind of processor that code is made for, and of numba's settings.

    ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` name another kind than this machine's.
    """
    given = [os.environ.get(f"NUMBA_{setting}", "") for setting in SETTINGS]
    try:
        given.append(_FILE.read_text())
    except OSError:
        given.append("")
    parts = [sys.platform, platform.machine(), name(), features(), *given]
    return hashlib.blake2b("|".join(parts).encode(), digest_size=8).hexdigest()


def cores() -> int:
    """Return how many threads this process can run at once.

    Examples
    --------
    >>> from gpusched.store.processors import cores
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def interpreted() -> bool:
    """Return whether numba is switched off, so that Python runs kernels."""
    # Another thread may be importing it, so that it has no settings yet.
    found = getattr(getattr(sys.modules.get("numba"), "config", None), "DISABLE_JIT", None)
    if found is not None:
        return bool(found)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def reads_ahead() -> bool:
    """Return whether it reads ahead by itself as fast as memory gives, if left to read in sequence.

    AMD's Zen does: of chunks of 16M elements, on two cores of a `znver4`, clip takes 62 ms in
    sequence and 88 ms from four places in turn, asked for early (float64; 43 and 61 ms in float32),
    square-sum 51 and 76 ms (37 and 54 ms). On Intel's `sapphirerapids` it is the other way round:
    four places and asking early make the whole run of clip 1.3 to 1.4 times as fast.
    """
    return name().startswith("znver")
