"""Which major version of CUDA each installed package is made for."""

from __future__ import annotations

import importlib.metadata
import re

from gpusched import installing
from gpusched.cli.checks.finding import Finding

_NAMED = re.compile(r"cupy-cuda(\d+)x?")
_VERSIONED = ("cuda-bindings", "cuda-toolkit")
"""Packages whose own major version is CUDA's."""


def majors() -> dict[str, int]:
    """Return CUDA's major version by package, of those that are made for one."""
    found = {}
    for name, version in _installed().items():
        named = _NAMED.fullmatch(name)
        if named:
            # Wheels before CUDA 11.2 have the minor version in their name too: cupy-cuda111.
            found[name] = int(named[1][:2])
        elif name in _VERSIONED:
            found[name] = int(version.partition(".")[0])
    return found


def conflict(driver: tuple[int, int] | None) -> Finding | None:
    """Return what does not fit together, or None.

    Parameters
    ----------
    driver
        The newest CUDA that the driver can run, as (major, minor); None where it does not report.
    """
    cupys = sorted(name for name in _installed() if name == "cupy" or _NAMED.fullmatch(name))
    if len(cupys) > 1:
        return Finding.failure(
            f"CuPy is installed {len(cupys)} times: {', '.join(cupys)}",
            f"pip uninstall {' '.join(cupys)}, then install the one for this driver",
        )
    found = majors()
    told = ", ".join(f"{name} for CUDA {major}" for name, major in sorted(found.items()))
    if len(set(found.values())) > 1:
        return Finding.failure(
            f"packages for different CUDA versions: {told}",
            "pip uninstall those of the wrong one: [cuda12] and [cuda13] exclude each other",
        )
    if driver and found and max(found.values()) > driver[0]:
        return Finding.failure(
            f"the driver runs CUDA up to {driver[0]}.{driver[1]}, and there is {told}",
            f"{installing.command(f'cuda{driver[0]}')} in a new environment, or update the driver",
        )
    return None


def _installed() -> dict[str, str]:
    return {
        (found.metadata["Name"] or "").lower().replace("_", "-"): found.version
        for found in importlib.metadata.distributions()
    }
