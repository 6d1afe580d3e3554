"""How exact a kernel's mathematics is: ``exact``, or ``fast`` where somebody asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpusched import config
from gpusched.emit.kernel import EXACT, FAST, Kernel

MODES = (EXACT, FAST)
_FLOATING = ("float16", "float32", "float64")


def checked(mode: Any, where: str) -> str:
    """Return a mode; `ValueError` for anything else, which has `where` it was found.

    Examples
    --------
    >>> from gpusched.plan.precision import checked
    >>> checked("fast", "mathematics")
    'fast'
    """
    if mode not in MODES:
        raise ValueError(f"{where} is {mode!r}: say 'exact' or 'fast'")
    return str(mode)


def mathematics() -> str:
    """Return the mode in effect where this is called.

    Examples
    --------
    >>> from gpusched.plan.precision import mathematics
    >>> mathematics()
    'exact'
    """
    found = config.get("fusion.mathematics")
    return EXACT if found == EXACT else checked(found, "gpusched.fusion.mathematics")


def applied(kernel: Kernel, mode: str) -> Kernel:
    """Return a kernel that computes in a mode; the same one where that makes no difference."""
    if mode == EXACT or not any(s.dtype in _FLOATING for s in kernel.statements):
        return kernel
    return replace(kernel, mathematics=mode)
