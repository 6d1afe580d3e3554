"""What a machine's memory can do: the CPU's from `gpusched.machine`, a GPU's by copying."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gpusched.machine import Host, host, known_host
from gpusched.profiling.process_report import Limit

_COPIED = 256 << 20
"""Bytes: more than any GPU's cache."""
_TIMES = 5


def limit_of(device: str) -> Limit | None:
    """Return what this process's device of that name can do; None for one that is not here.

    Examples
    --------
    >>> from gpusched.profiling.memory_bandwidth import limit_of
    >>> limit_of("cpu").one > 1e6, limit_of("unheard-of")
    (True, None)
    """
    if device == "cpu":
        return _limit(host())
    return _copied() if device == "cuda" else None


def known_limit_of(device: str) -> Limit | None:
    """Return what `limit_of` does where that takes no measuring, and None otherwise.

    Examples
    --------
    >>> from gpusched.profiling.memory_bandwidth import known_limit_of, limit_of
    >>> limit_of("cpu") == known_limit_of("cpu")
    True
    """
    if device == "cpu":
        here = known_host()
        return None if here is None else _limit(here)
    return _copied() if device == "cuda" and _copied.cache_info().currsize else None


def _limit(here: Host) -> Limit:
    return Limit(here.bandwidth_one, here.bandwidth_all)


@lru_cache(maxsize=1)
def _copied() -> Limit | None:
    """Return the bandwidth of the current GPU, measured by a copy within its memory."""
    import cupy

    try:
        source = cupy.zeros(_COPIED, "uint8")
        target = cupy.empty_like(source)
    except cupy.cuda.memory.OutOfMemoryError:
        return None
    rate = 2 * _COPIED / min(_copy_seconds(cupy, source, target) for _ in range(_TIMES))
    return Limit(rate, rate)


def _copy_seconds(cupy: Any, source: Any, target: Any) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    cupy.copyto(target, source)
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3
