"""The driver, its libraries, and the cores near each GPU."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from gpusched import cudadriver, installing, quantities
from gpusched.cli.checks import isolated, wheels
from gpusched.cli.checks.finding import Finding
from gpusched.workers import affinity
from gpusched.workers import nvml as management
from gpusched.workers.visible_gpus import ENVIRONMENT_VARIABLE, installed_devices, visible_devices

_DRIVER_FOLDER = Path("/proc/driver/nvidia")
_BUS = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""How the PCI class of graphics cards and of GPUs without a display begins."""
_NO_GPU = "no NVIDIA GPU"
_ERRORS = {
    3: "the driver's kernel module is not loaded",
    34: "this libcuda.so.1 is the toolkit's stand-in for linking, not the driver's",
    cudadriver.NO_DEVICE: "the driver finds no GPU",
    802: "the NVLink fabric is not up: nvidia-fabricmanager does not run",
    803: "the driver's library and its kernel module have different versions",
    804: "this GPU does not take the compatibility libraries of a newer CUDA",
    999: "the driver cannot be initialised, often after it was updated without a restart",
}
"""What cuInit's most frequent errors mean."""


def has_hardware() -> bool:
    """Return whether the driver shows signs of a GPU, whether or not it works."""
    return _DRIVER_FOLDER.exists() or bool(installed_devices()) or Path("/dev/nvidia0").exists()


def on_the_bus() -> int:
    """Return how many NVIDIA GPUs are plugged in, driver or not; 0 where Linux does not report."""
    found = 0
    for device in _BUS.glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            found += vendor == _NVIDIA and (device / "class").read_text().startswith(_DISPLAY)
        except OSError:
            # Unplugged meanwhile, or hidden from this container.
            continue
    return found


def driver() -> Finding:
    """Ask the driver itself for its GPUs."""
    library = _library()
    if library is None:
        return _without_library()
    status, devices = cudadriver.start(library)
    if status not in (0, cudadriver.NO_DEVICE):
        if not has_hardware():
            # Container images bring a libcuda to machines without a GPU.
            return Finding.skipped(_NO_GPU)
        told = _ERRORS.get(status, "see the CUDA driver's list of errors")
        remedy = "look at nvidia-smi and dmesg; restart the machine after a driver's update"
        return Finding.failure(f"cuInit returned {status}: {told}", remedy)
    if not devices:
        return _without_device()
    newest = supported_cuda()
    told = f", CUDA up to {newest[0]}.{newest[1]}" if newest else ""
    return Finding.ok(f"{quantities.count(devices, 'GPU')}{told}")


def supported_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver can run; None where it does not report."""
    library, version = _library(), ctypes.c_int(0)
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def _library() -> Any:
    try:
        return cudadriver.load()
    except OSError:
        return None


def _without_library() -> Finding:
    if has_hardware():
        return Finding.failure(
            "there is a GPU, and libcuda.so.1 was not found",
            "install the NVIDIA driver, or start the container with its GPUs (docker: --gpus all)",
        )
    if on_the_bus():
        return Finding.warning(
            f"{on_the_bus()} NVIDIA GPUs are plugged in, and there is no driver: CPU workers only",
            "install the NVIDIA driver, or start the container with its GPUs (docker: --gpus all)",
        )
    return Finding.skipped(_NO_GPU)


def _without_device() -> Finding:
    if not has_hardware():
        return Finding.skipped(_NO_GPU)
    asked = os.environ.get(ENVIRONMENT_VARIABLE)
    if asked is None:
        return Finding.failure(
            "the driver works and shows no GPU",
            "look at nvidia-smi; check that the job or the container asked for GPUs",
        )
    if asked.strip() in ("", "-1", "NoDevFiles"):
        return Finding.skipped(f"{ENVIRONMENT_VARIABLE}={asked} hides every GPU")
    return Finding.failure(
        f"{ENVIRONMENT_VARIABLE}={asked} names none of the driver's GPUs",
        f"nvidia-smi -L shows those there are; unset {ENVIRONMENT_VARIABLE} for all of them",
    )


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
    """Import the GPU packages in a process of their own, and compare their CUDA versions."""
    if not has_hardware():
        return Finding.skipped(_NO_GPU)
    # Packages for another CUDA may be why one cannot be imported, so this comes first.
    conflict = wheels.conflict(supported_cuda())
    if conflict is not None:
        return conflict
    remedy = f"{installing.command('cuda13')}, or [cuda12] for a driver of CUDA 12"
    done = isolated.run(_IMPORTS, 120)
    if done.problem:
        return Finding.failure(f"importing them ends Python: {done.problem}", remedy)
    found = json.loads(done.output)
    broken = [f"{name} ({told})" for name, (works, told) in found.items() if not works]
    if broken:
        return Finding.failure(f"cannot be imported: {'; '.join(broken)}", remedy)
    told = ", ".join(f"{name} {told}".strip() for name, (_, told) in found.items())
    made_for = sorted(set(wheels.majors().values()))
    return Finding.ok(f"{told}, for CUDA {made_for[0]}" if made_for else told)


def nvml() -> Finding:
    """Ask NVML, which reports UUIDs, memory and the cores near a GPU."""
    with management.session() as library:
        count = 0 if library is None else library.nvmlDeviceGetCount()
    if count:
        return Finding.ok(quantities.count(count, "GPU"))
    if not has_hardware():
        return Finding.skipped(_NO_GPU)
    return Finding.warning(
        "NVML does not answer: GPUs are not bound to cores, and their memory is not bounded"
        if library is None
        else "NVML shows no GPU, and the driver does",
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
            f"{'; '.join(far)}; {told}",
            "ask the queueing system for cores near the GPUs, or --no-pin",
        )
    return Finding.ok(told)
