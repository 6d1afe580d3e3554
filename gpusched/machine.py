"""What this machine can do, measured once and kept with its date."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from gpusched import forks
from gpusched.backends.cache import PreparedKernel, reference
from gpusched.dataclass import dataclass
from gpusched.emit import hostloops
from gpusched.emit.kernel import Access, Input, Kernel, Output, Statement
from gpusched.emit.operations import replaced
from gpusched.store import codefiles, kernelfiles
from gpusched.store.processors import cores, interpreted

_ADDED = 32 << 20
_CACHED = 32768
"""Elements of a chunk that is in the cache, with its result."""
_SMALL = 16
"""Elements of a chunk whose arithmetic takes no time."""


@dataclass(frozen=True)
class Host:
    """Figures of a machine that are measured in a quarter of a second, without a compiler."""

    date: str
    """When they were measured, in UTC, as ISO 8601 has it."""
    processor: str
    threads: int
    """Threads that may run at once."""
    bandwidth_one: float
    """Bytes read and written a second by one thread that adds two large arrays."""
    bandwidth_all: float
    """The same of all threads together."""
    task_seconds: float
    """What dask's threaded scheduler takes for a task that does nothing."""


@dataclass(frozen=True)
class Machine(Host):
    """The same, and figures of kernels, which are compiled to be measured: that takes seconds."""

    simple_rate: float
    """Additions and multiplications of float64 a second by one thread, in a fused kernel."""
    heavy_rate_double: float
    """exp, log and sin of float64 a second by one thread, as many of each, in a fused kernel."""
    heavy_rate_single: float
    """The same of float32."""
    launch_seconds: float
    """What calling a kernel costs."""


_Figures = TypeVar("_Figures", bound=Host)

_lock = forks.lock()
_measured: dict[str, Host] = {}


def host() -> Host:
    """Return what is known of this machine without a compiler; measured now if not on disk."""
    with _lock:
        return _known() or _kept(measure_host())


def known_host() -> Host | None:
    """Return what `host` does if it was measured before, and None otherwise.

    Examples
    --------
    >>> from gpusched.machine import host, known_host
    >>> host() == known_host()
    True
    """
    with _lock:
        return _known()


def machine(again: bool = False) -> Machine:
    """Return the figures of this machine, measured now if they are not on disk.

    Parameters
    ----------
    again
        Measure them now in any case.
    """
    with _lock:
        found = None if again else _known()
        if isinstance(found, Machine):
            return found
        return _kept(measure(found))


def measure_host() -> Host:
    """Return figures measured now, without a compiler."""
    threads = cores()
    one, every = _bandwidths(threads)
    return Host(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=_processor(),
        threads=threads,
        bandwidth_one=one,
        bandwidth_all=every,
        task_seconds=_task_seconds(),
    )


def measure(known: Host | None = None) -> Machine:
    """Return figures measured now: takes a second or two, most of it for compiling.

    Parameters
    ----------
    known
        What has been measured already; None to measure it, too.

    Raises
    ------
    RuntimeError
        If a function of NumPy's is replaced: then nothing can be compiled.
    """
    missing = replaced()
    if missing:
        raise RuntimeError(
            f"numpy.{missing} is not NumPy's, so that no kernel can be compiled to measure this "
            "machine with: put NumPy's own function back first"
        )
    return Machine(
        **asdict(known or measure_host()),
        simple_rate=_kernel_rate(_SIMPLE, "float64"),
        heavy_rate_double=_kernel_rate(_HEAVY, "float64"),
        heavy_rate_single=_kernel_rate(_HEAVY, "float32"),
        launch_seconds=_kernel_seconds(_SIMPLE, "float64", _SMALL),
    )


def _best(call: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return max(min(found), 1e-9)


def _bandwidths(threads: int) -> tuple[float, float]:
    """Return the bytes per second that one thread, and all threads, move as they add arrays."""
    first, second = np.ones(_ADDED // 8), np.ones(_ADDED // 8)
    target = np.zeros_like(first)
    moved = first.nbytes + second.nbytes + target.nbytes
    one = moved / _best(lambda: np.add(first, second, out=target), 3)
    if threads == 1:
        return one, one
    parts = [np.array_split(array, threads) for array in (first, second, target)]
    with ThreadPoolExecutor(threads) as pool:

        def add() -> None:
            list(pool.map(np.add, *parts))

        add()
        every = moved / _best(add, 3)
    return one, max(one, every)


def _chain(steps: Sequence[tuple[str, str]], dtype: str) -> Kernel:
    """Return the kernel in which each operation takes what the one before gave, and a constant."""
    statements = tuple(
        Statement(name, 0, (k, f"{dtype}({constant})") if constant else (k,), dtype, dtype)
        for k, (name, constant) in enumerate(steps)
    )
    unit = (Access.UNIT,)
    result = Output(len(steps), dtype, unit, value_dtype=dtype)
    return Kernel((Input(dtype, unit),), (), statements, (result,), ("map",))


_SIMPLE = (("add", "1.0"), ("multiply", "0.5")) * 8
_HEAVY = (("exp", ""), ("log", ""), ("sin", ""))


def _kernel_seconds(steps: Sequence[tuple[str, str]], dtype: str, elements: int) -> float:
    """Return the seconds of a run of a chain's kernel; no setting changes it, nobody counts it."""
    kernel = _chain(steps, dtype)
    if interpreted():
        call = reference(kernel).call
    else:
        prepared = PreparedKernel(kernel, kernel, hostloops.source(kernel))
        call = prepared.made_of(prepared.compile()).call
    values: np.ndarray = np.linspace(0.5, 1.5, elements).astype(dtype)
    result = np.empty_like(values)
    call(values, result, elements)
    return _best(lambda: call(values, result, elements), 7)


def _kernel_rate(steps: Sequence[tuple[str, str]], dtype: str) -> float:
    """Return the operations per second of a chain's kernel on a chunk in the cache."""
    elements = _SMALL if interpreted() else _CACHED
    return len(steps) * elements / _kernel_seconds(steps, dtype, elements)


def _task_seconds() -> float:
    """Return what a task costs in dask's threaded scheduler."""
    from dask.threaded import get

    count = 300
    graph = {f"task-{k}": (int, k) for k in range(count)}
    return _best(lambda: get(graph, list(graph)), 2) / count


def _identity() -> str:
    return "|".join([platform.node(), _processor(), str(os.cpu_count())])


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = (line.split(":", 1)[1].strip() for line in file if line[:10] == "model name")
            return next(names, platform.machine())
    except FileNotFoundError:
        return platform.processor() or platform.machine()  # not Linux


def _known() -> Host | None:
    """Return what was measured before, by this process or by another one."""
    name = _identity()
    found = _measured.get(name) or _read(name)
    if found is not None:
        _measured[name] = found
    return found


def _kept(found: _Figures) -> _Figures:
    """Return figures, which are kept for this process, and for others unless Python ran kernels."""
    _measured[_identity()] = found
    if not interpreted():
        _write(_identity(), found)
    return found


def _read(name: str) -> Host | None:
    root = kernelfiles.directory()
    content = codefiles.read(root / "machine.json") if root is not None else None
    if content is None:
        return None
    try:
        told = json.loads(content)
    except ValueError:
        return None  # cut short: measured again, and written anew
    if not isinstance(told, dict) or told.pop("identity", None) != name:
        return None
    kinds: tuple[type[Host], ...] = (Machine, Host)
    fitting = (kind for kind in kinds if told.keys() == {f.name for f in fields(kind)})
    return next((kind(**told) for kind in fitting), None)


def _write(name: str, found: Host) -> None:
    root = kernelfiles.directory()
    if root is None:
        return
    content = json.dumps({"identity": name, **asdict(found)}, indent=1)
    kernelfiles.write_or_warn(root / "machine.json", content.encode())
