"""What is there: card, driver, versions; and whether each layer works at all."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any

from tests import emulated_gpu

_PACKAGES = (
    "gpusched", "cupy-cuda13x", "cupy-cuda12x", "numba-cuda", "cuda-core", "cuda-bindings",
    "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-ml-py", "numpy", "numba",
    "llvmlite", "dask", "distributed", "torch", "jax",
)  # fmt: skip

EMULATED = "emulated, not yet run on a card"


def inventory(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the card, the driver, and the versions of what is installed."""
    import cupy

    from gpusched.workers import nvml

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    free, total = cupy.cuda.runtime.memGetInfo()
    with nvml.session() as library:
        driver = "none" if library is None else library.nvmlSystemGetDriverVersion()
    facts = {
        "card": properties["name"].decode(),
        "state": EMULATED if emulated_gpu.active else "a card",
        "compute capability": f"{properties['major']}.{properties['minor']}",
        "multiprocessors": properties["multiProcessorCount"],
        "memory": f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} free",
        "driver": driver,
        "CUDA of the driver": cupy.cuda.runtime.driverGetVersion(),
        "CUDA of the runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "GPUs": cupy.cuda.runtime.getDeviceCount(),
        "Python": platform.python_version(),
        "system": platform.release(),
    }
    return {
        "The machine": [{"what": name, "is": str(value)} for name, value in facts.items()],
        "Versions": [{"package": n, "version": v} for n in _PACKAGES if (v := _version(n))],
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def layers(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return how the smallest thing of each layer went; a failure does not end the others."""
    tried: dict[str, Callable[[], None]] = {
        "CuPy adds": _cupy,
        "numba-cuda compiles": _compile,
        "cuda-core launches": _launch,
        "torch takes an array": _torch,
        "JAX takes an array": _jax,
    }
    return {"Layers": [{"layer": name, "outcome": _outcome(run)} for name, run in tried.items()]}


def _outcome(run: Callable[[], None]) -> str:
    try:
        run()
    except ModuleNotFoundError as error:
        return f"not installed: {error.name}"
    except Exception as error:  # noqa: BLE001  The report is about it.
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:300]
    return "ok"


def _cupy() -> None:
    import cupy

    assert (cupy.arange(8) + 1).get().tolist() == list(range(1, 9))


def _compile() -> None:
    from gpusched.backends.cuda.compiler import compile_kernel
    from gpusched.backends.cuda.numba_cuda import cuda, types

    def kernel(x: Any) -> None:
        x[0] = cuda.threadIdx.x

    assert compile_kernel(kernel, (types.CPointer(types.float32),), (9, 0)).cubin


def _launch() -> None:
    import cupy
    import dask
    import dask.array as da

    import gpusched

    x = da.from_array(cupy.arange(10_000.0), chunks=5_000)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "wait"}):
        found = ((x + 1) * x).compute(scheduler="sync")
    assert (found == (cupy.arange(10_000.0) + 1) * cupy.arange(10_000.0)).all()
    assert gpusched.statistics().launches == 2


def _torch() -> None:
    import cupy
    import torch

    assert torch.from_dlpack(cupy.arange(4.0)).sum().item() == 6


def _jax() -> None:
    import cupy
    import jax

    assert float(jax.dlpack.from_dlpack(cupy.arange(4.0)).sum()) == 6


def doctor(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return what `gpusched doctor` finds."""
    from gpusched.cli import checks

    rows = [
        {"check": found.name, "status": found.status, "found": found.text} for found in checks.run()
    ]
    return {"gpusched doctor": rows}
