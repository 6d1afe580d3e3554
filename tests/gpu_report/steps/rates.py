"""How fast: copies, kernels, launches and whole programs, with what others take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gpu_report.steps.attempts import or_error


def _size(rehearsal: bool, large: int) -> int:
    return 1 << 16 if rehearsal else large


def _seconds(call: Callable[[], Any], repeat: int = 7) -> float:
    """Return the median of some calls, each waited for, after one that warms up."""
    import cupy

    call()
    found = []
    for _ in range(repeat):
        cupy.cuda.Device().synchronize()
        started = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def copies(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the rates of copies to, from and within the card."""
    import cupy

    from gpusched.workers.device.page_locked import PageLockedMemory

    nbytes = _size(rehearsal, 1 << 30)
    there, beside = (cupy.empty(nbytes, "u1") for _ in range(2))
    locked = PageLockedMemory().take(nbytes)
    locked[:] = 1
    pageable = np.ones(nbytes, "u1")
    tried = {
        "page-locked to card": (lambda: there.set(locked), 1),
        "card to page-locked": (lambda: there.get(out=locked), 1),
        "pageable to card": (lambda: there.set(pageable), 1),
        "card to pageable": (lambda: there.get(out=pageable), 1),
        "cupy.asarray": (lambda: cupy.asarray(pageable), 1),
        "within the card, read and write": (lambda: cupy.copyto(beside, there), 2),
    }
    rows = [
        {"copy": name, "GB/s": round(passes * nbytes / _seconds(call) / 1e9, 2)}
        for name, (call, passes) in tried.items()
    ]
    lock = _seconds(lambda: cupy.cuda.runtime.freeHost(cupy.cuda.runtime.hostAlloc(nbytes, 0)), 3)
    rows.append({"copy": "page-locking and giving back", "GB/s": round(nbytes / lock / 1e9, 2)})
    return {"Copies": rows}


PROGRAMS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "a*x + y": (lambda m, x, y: x * 2.5 + y, 2, 1),
    "clip": (lambda m, x: m.clip(x * 2, -1, 1), 1, 1),
    "exp(-x*x)": (lambda m, x: m.exp(-x * x), 1, 1),
    "tanh(x) + x/3": (lambda m, x: m.tanh(x) + x / 3, 1, 1),
    "sum of squares": (lambda m, x: m.sum(x * x), 1, 0),
    "sum of columns": (lambda m, x: m.sum(x + 1, axis=0), 1, 0),
}
"""Each a function of a module and arrays, with the arrays that are read and written whole."""

RUNS: dict[str, Callable[[Any], Any]] = {
    "standardise": lambda x: (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6),
    "chain of ten": lambda x: ((((x * 2 + 1) * x - 3) / (x + 2)) ** 2 * x + 1).sum(),
    "variance": lambda x: (x * 3 + 1).var(axis=1),
    "heat": lambda x: x.map_overlap(_step, depth=1, boundary="reflect", trim=False, dtype="f4"),
}
"""Whole programs of a dask array."""


def bandwidth(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return GB/s of fused chunks, of CuPy's calls, and of others that fuse."""
    import cupy

    count = _size(rehearsal, 1 << 27)
    side = int(count**0.5)
    rows = []
    for name, (function, reads, writes) in PROGRAMS.items():
        arrays = [cupy.full((side, side), 0.5 + k, "f4") for k in range(reads)]
        moved = (reads + writes) * arrays[0].nbytes
        row: dict[str, Any] = {"program": name, "minimum MB": round(moved / 1e6)}
        for who, make in _CONTENDERS.items():
            try:
                call = make(function, arrays)
                row[who] = round(moved / _seconds(call) / 1e9, 1)
            except ModuleNotFoundError:
                row[who] = "not installed"
            except Exception as error:  # noqa: BLE001  The report is about it.
                row[who] = type(error).__name__
        rows.append(row)
    return {"GB/s of the least that must be moved, float32": rows}


def _fused(function: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any]:
    from gpusched.backends.devices import cuda
    from tests.record import recording

    recording.BACKENDS["cuda"] = cuda().compile
    found = recording.record(lambda *a: function(np, *a), *arrays, backend="cuda", device=cuda())
    for kernel in found.plan.kernels:
        kernel.wait()
    return lambda: found.plan.run(tuple(arrays))


def _cupy(function: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any]:
    import cupy

    return lambda: function(cupy, *arrays)


def _cupy_fuse(function: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any]:
    import cupy

    def program(*given: Any) -> Any:  # Whose name the kernel gets.
        return function(cupy, *given)

    fused = cupy.fuse(program)
    return lambda: fused(*arrays)


def _torch(function: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any]:
    import torch

    given = [torch.from_dlpack(array) for array in arrays]
    compiled = torch.compile(lambda *a: function(torch, *a))
    compiled(*given)
    return lambda: (compiled(*given), torch.cuda.synchronize())


def _jax(function: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any]:
    import jax

    given = [jax.dlpack.from_dlpack(array) for array in arrays]
    compiled = jax.jit(lambda *a: function(jax.numpy, *a))
    return lambda: jax.block_until_ready(compiled(*given))


_CONTENDERS: dict[str, Callable[..., Callable[[], Any]]] = {
    "gpusched": _fused,
    "CuPy": _cupy,
    "cupy.fuse": _cupy_fuse,
    "torch.compile": _torch,
    "JAX": _jax,
}


def launches(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return microseconds of one call on small arrays, without and with waiting for it."""
    import cupy

    count = 100 if rehearsal else 2_000
    x = cupy.ones((64, 64), "f4")
    function = PROGRAMS["clip"][0]
    rows = []
    for who in ("gpusched", "CuPy", "cupy.fuse"):
        call = _CONTENDERS[who](function, [x])
        for _ in range(10):
            call()
        cupy.cuda.Device().synchronize()
        started = time.perf_counter()
        for _ in range(count):
            call()
        issued = time.perf_counter() - started
        cupy.cuda.Device().synchronize()
        done = time.perf_counter() - started
        rows.append({"who": who, "us to issue": round(issued / count * 1e6, 1),
                     "us to the end": round(done / count * 1e6, 1)})  # fmt: skip
    return {"Calls on 64 x 64 numbers": rows}


def runs(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return seconds of whole dask programs, fused and as dask with CuPy runs them."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    sides = [512] if rehearsal else [s for s in (16_384, 49_152) if 4 * s * s < free / 6]
    return {f"Whole programs on {side} x {side} float32, 16 chunks": _runs(side) for side in sides}


def _runs(side: int) -> list[dict[str, Any]]:
    import cupy
    import dask
    import dask.array as da

    import gpusched

    draws = cupy.random.default_rng(0)
    chunk = side // 4
    parts = [[draws.random((chunk, chunk), "f4") for _ in range(4)] for _ in range(4)]
    x = da.block([[da.from_array(part, chunks=chunk) for part in row] for row in parts])
    x = x.persist(scheduler="threads")
    rows = []
    for name, build in RUNS.items():

        def program(build: Callable[[Any], Any] = build) -> Any:
            made = build(x)
            return abs(made).sum(axis=0) if made.ndim == 2 else made

        def measured(program: Callable[[], Any] = program) -> dict[str, Any]:
            with dask.config.set(scheduler="threads", num_workers=2):
                plain = _seconds(lambda: program().compute(), 3)
                with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "wait"}):
                    fused = _seconds(lambda: program().compute(), 3)
            return {"dask + CuPy ms": round(plain * 1e3, 1), "gpusched ms": round(fused * 1e3, 1),
                    "ratio": round(plain / fused, 2)}  # fmt: skip

        rows.append({"program": name, **or_error(measured)})
        cupy.get_default_memory_pool().free_all_blocks()
    return rows


def unchanged(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return seconds of programs of NumPy arrays: as dask runs them, and on a cluster of GPUs."""
    import dask.array as da
    from distributed import Client, wait

    import gpusched

    side = 2_048 if rehearsal else 16_384  # The host is done sooner with fewer.
    chunks, meta = ((side // 4,) * 4,) * 2, np.empty((0, 0), "f4")
    x = da.map_blocks(_loaded, chunks=chunks, dtype="f4", meta=meta)
    rows = []
    with gpusched.Cluster(gpus="all") as cluster, Client(cluster) as client:
        kept = client.persist(da.map_blocks(_loaded, name="kept", chunks=chunks, meta=meta))
        wait(kept)
        for name, build in RUNS.items():
            row = or_error(lambda build=build: _moved(build, x, kept, client))
            rows.append({"program": name, **row})
    return {f"Unchanged NumPy programs on {side} x {side} float32": rows}


def _moved(build: Callable[[Any], Any], x: Any, kept: Any, client: Any) -> dict[str, Any]:
    """Return how a program went: by dask alone, on a client's GPUs, and from what is kept there.

    Large results are added up, so that the way to the client is not what is timed.
    """
    import gpusched
    from gpusched.cluster.statistics import difference, gather

    def program(source: Any) -> Any:
        made = build(source)
        return abs(made).sum(axis=0) if made.ndim == 2 else made

    with gpusched.disable():
        plain, wanted = _timed(lambda: program(x).compute(scheduler="threads"))
    before = gather(client)
    first, found = _timed(lambda: program(x).compute())
    counts = difference(gather(client), before)
    later = min(_timed(lambda: program(x).compute())[0] for _ in range(3))
    resident = min(_timed(lambda: program(kept).compute())[0] for _ in range(4))
    apart = float(abs(np.asarray(found) - wanted).max() / abs(wanted).max())
    return {
        "dask ms": round(plain * 1e3), "first ms": round(first * 1e3),
        "later ms": round(later * 1e3), "with x persisted ms": round(resident * 1e3),
        "tasks on GPUs": f"{counts.device_tasks} of {counts.device_tasks + counts.host_tasks}",
        "MB to GPUs": round(counts.bytes_to_device / 1e6),
        "MB back": round(counts.bytes_to_host / 1e6),
        "apart": f"{apart:.0e}", "result": type(found).__module__,
        "most often on the host as": max(
            counts.host_reasons, key=counts.host_reasons.__getitem__, default=("", "")
        )[1],
    }  # fmt: skip


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = call()
    return time.perf_counter() - started, found


def _loaded(block_info: Any = None) -> np.ndarray:
    """Return a chunk as a reader does: in host memory."""
    there = block_info[None]
    return np.random.default_rng(there["chunk-location"]).random(there["chunk-shape"], "f4")


def _step(a: Any) -> Any:
    inner = a[1:-1, 1:-1]
    around = a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2]
    return inner + 0.1 * (around - 4 * inner)
