"""Kernels, copies and spilling as a profiler is told of them, through CuPy and NVTX themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

PROGRAM = """
import dask
import dask.array as da
import numpy as np

import gpusched
from gpusched.workers.device.cuda import CudaDevice
from gpusched.workers.memory.spillfiles import SpillFiles
from gpusched.workers.memory.store import Store
import cupy, pathlib, sys

device = CudaDevice("")
x = da.from_array(cupy.asarray(np.arange(10_000.0)), chunks=-1)
with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "wait"}):
    value = (x * 2 + 1).compute(scheduler="sync")
value = device.copies().to_device(np.ones(100_000))
device.copies().to_host(value)
store = Store(device, SpillFiles(pathlib.Path(sys.argv[1])))
store["x"] = value
store.make_room(1e9, 1e9).result()
store["x"]
store.close()
"""


def test_a_profiler_is_told_of_kernels_copies_and_spilling(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc makes the listener")
    listener = tmp_path / "listener.so"
    source = Path(__file__).with_name("nvtx_listener.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", listener, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "spilled")],
        env={**os.environ, "NVTX_INJECTION64_PATH": str(listener)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    begun = [line.split(maxsplit=3)[2:] for line in done.stderr.splitlines() if "NVTX b" in line]
    texts = {text for _, text in begun}
    assert any(text.startswith("gpusched kernel: multiply_add_") for text in texts)
    assert texts >= {
        "gpusched transfer: to the device",
        "gpusched transfer: to the host",
        "gpusched spill: to host memory",
        "gpusched spill: to disk",
        "gpusched spill: from disk",
        "gpusched spill: from host memory",
    }
    assert done.stderr.count("NVTX end") == len(begun)
