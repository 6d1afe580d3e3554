"""Ranges that NVIDIA's profilers show around kernels, copies and spilling on GPUs.

A profiler that listens, such as Nsight Systems, sets ``NVTX_INJECTION64_PATH`` in the processes
that it starts. In all others the functions stay as they are, and cost nothing more.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Kind(IntEnum):
    """What a range is, by its colour: alpha, red, green and blue, 8 bits each."""

    KERNEL = 0xFF76B900
    TRANSFER = 0xFFE69F00
    SPILL = 0xFFD55E00


def listening() -> bool:
    """Return whether a profiler listens to this process."""
    return "NVTX_INJECTION64_PATH" in os.environ


def shown(kind: Kind, name: str | Callable[..., str]) -> Callable[[F], F]:
    """Have profilers show the calls of a function on a GPU.

    Parameters
    ----------
    kind
        What the calls are.
    name
        Of the range; or what returns it from a call's positional arguments.

    Examples
    --------
    >>> from gpusched.nvtx_ranges import Kind, shown
    >>> shown(Kind.SPILL, "spill to disk")(len) is len  # No profiler listens.
    True
    """

    def mark(function: F) -> F:
        return _ranged(function, kind, name) if listening() else function

    return mark


def _ranged(function: F, kind: Kind, name: str | Callable[..., str]) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # It has NVTX, and has been imported in every process that uses a GPU.
        cupy = sys.modules.get("cupy")
        if cupy is None:
            return function(*args, **kwargs)
        text = name if isinstance(name, str) else name(*args)
        cupy.cuda.nvtx.RangePushC(f"gpusched {kind.name.lower()}: {text}", int(kind))
        try:
            return function(*args, **kwargs)
        finally:
            cupy.cuda.nvtx.RangePop()

    return call  # type: ignore[return-value]
