"""What this machine can do, measured in two seconds and kept with its date."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime

import numpy as np

from gpusched.fusion import codefiles, hostloops
from gpusched.fusion.backends.processors import cores, interpreted
from gpusched.fusion.cache import PreparedKernel, directory, reference
from gpusched.fusion.kernel import Access, Input, Kernel, Output, Statement

_ADDED = 32 << 20
_CACHED = 32768
"""Elements of a chunk that lies in the cache, with its result."""
_SMALL = 16
"""Elements of a chunk whose arithmetic takes no time."""


@dataclass(frozen=True)
class Machine:
    """Figures of a machine."""

    date: str
    """When they were measured, in UTC, as ISO 8601 has it."""
    processor: str
    threads: int
    """Threads that may run at once."""
    bandwidth_one: float
    """Bytes read and written a second by one thread that adds two large arrays."""
    bandwidth_all: float
    """The same of all threads together."""
    simple_rate: float
    """Additions and multiplications of float64 a second by one thread, in a fused kernel."""
    heavy_rate_double: float
    """exp, log and sin of float64 a second by one thread, as many of each, in a fused kernel."""
    heavy_rate_single: float
    """The same of float32."""
    task_seconds: float
    """What dask's threaded scheduler takes for a task that does nothing."""
    launch_seconds: float
    """What calling a kernel costs."""


_lock = threading.Lock()
_measured: dict[str, Machine] = {}


def machine(again: bool = False) -> Machine:
    """Return the figures of this machine, measured now if there are none on disk.

    Parameters
    ----------
    again
        Measure them now in any case.

    Examples
    --------
    >>> from gpusched.machine import machine
    >>> machine().bandwidth_one > 1e6
    True
    """
    with _lock:
        name = _identity()
        found = None if again else _measured.get(name) or _read(name)
        if found is None:
            found = measure()
            if not interpreted():
                _write(name, found)
        _measured[name] = found
        return found


def measured() -> Machine | None:
    """Return the figures of this machine if they were measured before, and None otherwise.

    Examples
    --------
    >>> from gpusched.machine import machine, measured
    >>> machine() == measured()
    True
    """
    with _lock:
        name = _identity()
        return _measured.get(name) or _read(name)


def measure() -> Machine:
    """Return figures measured now: takes a second or two, most of it for compiling.

    Examples
    --------
    >>> from gpusched.machine import measure
    >>> measure().simple_rate > 1e6
    True
    """
    threads = cores()
    one, every = _bandwidths(threads)
    return Machine(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=_processor(),
        threads=threads,
        bandwidth_one=one,
        bandwidth_all=every,
        simple_rate=_kernel_rate(_SIMPLE, "float64"),
        heavy_rate_double=_kernel_rate(_HEAVY, "float64"),
        heavy_rate_single=_kernel_rate(_HEAVY, "float32"),
        task_seconds=_task_seconds(),
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
    """Return the bytes a second that one thread, and all threads, move as they add arrays."""
    first, second = np.ones(_ADDED // 8), np.ones(_ADDED // 8)
    target = np.zeros_like(first)
    moved = first.nbytes + second.nbytes + target.nbytes
    one = moved / _best(lambda: np.add(first, second, out=target), 7)
    if threads == 1:
        return one, one
    parts = [np.array_split(array, threads) for array in (first, second, target)]
    with ThreadPoolExecutor(threads) as pool:

        def add() -> None:
            list(pool.map(np.add, *parts))

        add()
        every = moved / _best(add, 7)
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
        prepared = PreparedKernel(kernel, kernel, hostloops.source(kernel), kernel.name, None)
        call = prepared.made_of(prepared.compile()).call
    values: np.ndarray = np.linspace(0.5, 1.5, elements).astype(dtype)
    result = np.empty_like(values)
    call(values, result, elements)
    return _best(lambda: call(values, result, elements), 7)


def _kernel_rate(steps: Sequence[tuple[str, str]], dtype: str) -> float:
    """Return the operations a second of a chain's kernel on a chunk in the cache."""
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


def _read(name: str) -> Machine | None:
    root = directory()
    content = codefiles.read(root / "machine.json") if root is not None else None
    if content is None:
        return None
    try:
        told = json.loads(content)
    except ValueError:
        return None  # cut short: measured again, and written anew
    names = {"identity", *(f.name for f in fields(Machine))}
    if not isinstance(told, dict) or told.keys() != names or told.pop("identity") != name:
        return None
    return Machine(**told)


def _write(name: str, found: Machine) -> None:
    root = directory()
    if root is None:
        return
    try:
        content = json.dumps({"identity": name, **asdict(found)}, indent=1)
        codefiles.write(root / "machine.json", content.encode())
    except OSError as error:
        codefiles.warn_unwritable(root / "machine.json", error)
