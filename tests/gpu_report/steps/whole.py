"""Whole programs, clusters, models and tests: whether they run, not how fast."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

_CANCELLING = ("sum", "sum of columns", "first of the largest")


def programs(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return how random programs of dask, fused, compare with NumPy."""
    import cupy
    import dask
    import dask.array as da

    import gpusched
    from tests.gpu.test_programs import BINARY, LAST, UNARY, program

    generator = np.random.default_rng(0)
    steps = [*((n, None) for n in UNARY), *((n, 1) for n in BINARY)]
    given = generator.standard_normal((512, 480))
    rows, fused = [], 0
    count = 6 if rehearsal else 200
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.compile": "wait"}
    for number in range(count):
        chosen = [steps[k] for k in generator.integers(len(steps), size=4)]
        last = list(LAST)[number % len(LAST)]
        # Sums that cancel and equal maxima depend on the last places of float32.
        values = given if last in _CANCELLING else given.astype("f4")
        gpusched.reset_statistics()
        try:
            with gpusched.enable(), dask.config.set(settings):
                x = da.from_array(cupy.asarray(values), chunks=(128, 160))
                found = program(x, chosen, last).compute(scheduler="threads")
            wanted = program(values, chosen, last)
            np.testing.assert_allclose(cupy.asnumpy(found), wanted, rtol=1e-3, atol=1e-3)
            fused += gpusched.statistics().fused_tasks > 0
        except Exception as error:  # noqa: BLE001  The report is about it.
            traceback.print_exc()
            told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            rows.append({"program": f"{[n for n, _ in chosen]}, {last}", "error": told})
    summary = {"programs": count, "right": count - len(rows), "with kernels": fused}
    return {"Programs against NumPy": [summary], "Programs that differ": rows}


def memory(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return whether values restored in one thread are there in another, often and large."""
    import threading

    import cupy

    from gpusched.workers.device.cuda import CudaDevice

    device = CudaDevice("")
    count, times = (1 << 16, 3) if rehearsal else (1 << 27, 50)
    frozen = device.freeze(cupy.arange(count, dtype="f8"))
    wanted = float(count) * (count - 1) / 2
    wrong = 0
    for _ in range(times):
        made: list[Any] = []
        thread = threading.Thread(target=lambda made=made: made.append(device.thaw(frozen)))
        thread.start()
        thread.join()
        with device.stream():
            wrong += float(made[0].sum()) != wanted
    return {"Values restored by another thread": [{"times": times, "wrong": wrong}]}


def cluster(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return how a cluster computes, spills, and goes on after a context is lost."""
    import dask.array as da
    from distributed import Client

    import gpusched

    megabytes = 64 if rehearsal else 4_096
    rows = []

    def note(what: str, call: Callable[[Client], str]) -> None:
        try:
            rows.append({"what": what, "outcome": call(client)})
        except Exception as error:  # noqa: BLE001  The report is about it.
            traceback.print_exc()
            rows.append({"what": what, "outcome": f"{type(error).__name__}: {error}"[:300]})

    def on_gpu() -> Any:
        import cupy

        count = megabytes << 20 >> 3
        x = da.arange(count, chunks=max(count // 16, 1), dtype="f8")
        return x.map_blocks(cupy.asarray, meta=np.array(()))

    def computed(client: Client) -> str:
        total = float(((on_gpu() + 1) * 2).sum().compute())
        count = megabytes << 20 >> 3
        return "right" if total == count * (count + 1) else f"{total} is wrong"

    def spilled(client: Client) -> str:
        kept = (on_gpu() * 2).persist()
        total = float(kept.sum().compute())
        count = megabytes << 20 >> 3
        down = sum(
            client.run(lambda dask_worker: dask_worker.data.metrics()["device_bytes"]).values()
        )
        right = total == count * (count - 1)
        return f"{'right' if right else 'wrong'}, {down / 2**20:.0f} MiB were in host memory"

    limit = f"{megabytes // 2} MiB"
    with gpusched.Cluster(gpus="all", device_memory_limit=limit) as made, Client(made) as client:
        note("workers", lambda client: f"{len(client.scheduler_info()['workers'])} on GPUs")
        note("compute", computed)
        note("spill", spilled)
        note("an illegal address", _lose_context)
        note("compute after it", computed)
    return {"A cluster on all GPUs": rows}


def _lose_context(client: Any) -> str:
    try:
        client.submit(_illegal, pure=False, retries=0).result(timeout=60)
    except Exception as error:  # noqa: BLE001  The report is about it.
        return f"{type(error).__name__}, as it should be"
    return "nothing was raised"


def _illegal() -> Any:
    """Write to an address that is nobody's."""
    import cupy

    from tests import emulated_gpu

    if emulated_gpu.active:  # Whose kernels have the host's addresses.
        emulated_gpu.emulator.fail_launch(1)
    kernel = cupy.RawKernel(
        'extern "C" __global__ void wild(float *p) { p[(size_t)1 << 40] = 1; }', "wild"
    )
    x = cupy.zeros(4, "f4")
    if emulated_gpu.active:
        x += 1
    else:
        kernel((1,), (1,), (x,))
    cupy.cuda.Device().synchronize()
    return None


_VIEWS = {
    "contiguous": "x",
    "reversed": "x[:, ::-1]",
    "every other": "x[:, ::2]",
    "transposed": "x.T",
}
_MODEL = """
import cupy, dask.array as da, numpy as np, gpusched, {library}
values = np.arange(64.0, dtype="f4").reshape(8, 8)
x = da.from_array(cupy.asarray(values), chunks=(8, 8))
y = {view}
wanted = (lambda x: {view})(values) * 2 + 1
model = gpusched.apply(lambda t: t * 2 + 1, y, library={library!r}, dtype="f4")
found = model.compute(scheduler="sync")
assert np.array_equal(cupy.asnumpy(found), wanted), (found, wanted)
"""


def models(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return how models take chunks of every layout, each in a process that it may end."""
    rows = []
    for library in ("torch", "jax"):
        for name, view in _VIEWS.items():
            code = _MODEL.format(library=library, view=view)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            outcome = "ok" if done.returncode == 0 else f"exit {done.returncode}: {_why(done)}"
            if f"No module named '{library}'" in done.stderr:
                outcome = "not installed"
            rows.append({"library": library, "chunks": name, "outcome": outcome})
    return {"Models": rows}


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """Return what ended a process: the last exception, which notes may follow, or the last line."""
    lines = done.stderr.strip().splitlines() or [""]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (raised or lines)[-1][:200]


def suite(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return how the tests marked gpu went."""
    chosen = ["tests/gpu/test_failures.py"] if rehearsal else ["tests"]
    at_once = "0" if rehearsal else str(max(len(os.sched_getaffinity(0)) * 3 // 4, 1))
    command = [sys.executable, "-m", "pytest", *chosen, "-m", "gpu and not nightly", "-q", "-rfE",
               "--tb=short", "-n", at_once,
               "-p", "no:cacheprovider", "-p", "no:benchmark"]  # fmt: skip
    found: dict[str, int] = {}
    failed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # Printed as it comes, since this step may be ended.
            print(line, end="", flush=True)
            if counts := re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", line):
                found = {what: int(number) for number, what in counts}
            if test := re.match(r"(?:FAILED|ERROR) (\S+)(?: - (.*))?", line):
                failed.append({"test": test[1], "error": (test[2] or "")[:200]})
    rows = [{"outcome": what, "tests": number} for what, number in found.items()]
    return {"Tests marked gpu": rows, "Tests that fail": failed}
