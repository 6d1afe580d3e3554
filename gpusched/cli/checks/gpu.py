"""The driver, its libraries, and the cores near each GPU."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

from gpusched.cli.checks.finding import Finding
from gpusched.workers import affinity
from gpusched.workers import nvml as management
from gpusched.workers.devices import installed_devices, visible_devices

_DRIVER_FOLDER = Path("/proc/driver/nvidia")
_NO_GPU = "no NVIDIA GPU here"
_ERRORS = {
    3: "the driver's kernel module is not loaded",
    100: "the driver finds no GPU",
    802: "the NVLink fabric is not up: nvidia-fabricmanager does not run",
    803: "the driver's library and its kernel module have different versions",
    804: "this GPU does not take the compatibility libraries of a newer CUDA",
    999: "the driver cannot be initialised, often after it was updated without a restart",
}
"""What cuInit's most frequent errors mean."""


def has_hardware() -> bool:
    """Return whether there are signs of a GPU, whether or not it works."""
    return _DRIVER_FOLDER.exists() or bool(installed_devices()) or Path("/dev/nvidia0").exists()


def driver() -> Finding:
    """Ask the driver itself for its GPUs."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        if not has_hardware():
            return Finding.skipped(_NO_GPU)
        return Finding.failure(
            "there is a GPU, and libcuda.so.1 was not found",
            "install the NVIDIA driver, or start the container with its GPUs (docker: --gpus all)",
        )
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    status = library.cuInit(0)
    if status:
        told = _ERRORS.get(status, "see the CUDA driver's list of errors")
        remedy = "look at nvidia-smi and dmesg; restart the machine after a driver's update"
        return Finding.failure(f"cuInit returned {status}: {told}", remedy)
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if not count.value:
        return Finding.failure(
            "the driver works and shows no GPU",
            "check CUDA_VISIBLE_DEVICES, and that the batch job asked for GPUs",
        )
    return Finding.ok(f"{count.value} GPUs, CUDA up to {cuda}")


_IMPORTS = """
import importlib, json, sys
found = {}
for name in ("cupy", "numba.cuda", "cuda.core"):
    try:
        module = importlib.import_module(name)
        found[name] = [True, getattr(module, "__version__", "")]
    except Exception as error:
        found[name] = [False, f"{type(error).__name__}: {error}"]
print(json.dumps(found))
"""


def packages() -> Finding:
    """Import the GPU packages in a process of their own."""
    if not has_hardware():
        return Finding.skipped(_NO_GPU)
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, timeout=120
    )
    remedy = "pip install 'gpusched[cuda13]', or [cuda12] for a driver of CUDA 12"
    if done.returncode:
        return Finding.failure(f"importing them ends Python: {done.stderr.strip()[-200:]}", remedy)
    found = json.loads(done.stdout)
    broken = [f"{name} ({told})" for name, (works, told) in found.items() if not works]
    if broken:
        return Finding.failure(f"cannot be imported: {'; '.join(broken)}", remedy)
    return Finding.ok(", ".join(f"{name} {told}".strip() for name, (_, told) in found.items()))


def nvml() -> Finding:
    """Ask NVML, which tells UUIDs, memory and the cores near a GPU."""
    with management.session() as library:
        if library is not None:
            return Finding.ok(f"{library.nvmlDeviceGetCount()} GPUs")
    if not has_hardware():
        return Finding.skipped(_NO_GPU)
    return Finding.warning(
        "NVML does not answer: GPUs are not bound to cores, and their memory is not bounded",
        "pip install nvidia-ml-py, and make libnvidia-ml.so.1 visible in the container",
    )


def pinning() -> Finding:
    """Compare the cores near each GPU with those that this process may use."""
    allowed = affinity.allowed_cpus()
    refused = affinity.pin(allowed)
    if refused:
        return Finding.warning(f"cannot bind to cores: {refused}", "use --no-pin")
    far = []
    for entry in visible_devices():
        facts = management.facts(entry)
        if facts is not None and facts.cpus and not set(facts.cpus) & set(allowed):
            far.append(f"GPU {entry} is near cores {affinity.ranges(facts.cpus)}")
    told = f"this process may use cores {affinity.ranges(allowed)}"
    if far:
        return Finding.warning(
            f"{'; '.join(far)}; {told}", "ask the batch system for cores near the GPUs, or --no-pin"
        )
    return Finding.ok(told)
