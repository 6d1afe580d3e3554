"""The check, from inside a worker, that it has got the GPU that it was meant to."""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any

from gpusched import cudadriver
from gpusched.workers.visible_gpus import ENVIRONMENT_VARIABLE


class WrongDeviceError(RuntimeError):
    """A worker sees another GPU than its own, or more than one."""


def check(expected: str, driver: Any = None) -> None:
    """Ask the driver which GPUs this process sees; there must be one, the expected.

    Raises `WrongDeviceError` if the process sees another GPU, several or none.

    Parameters
    ----------
    expected
        The GPU's UUID as NVML gives it; empty to check nothing.
    driver
        Stands for ``libcuda.so.1`` in tests.
    """
    if not expected or "/" in expected:
        # The older names of parts (MIG-GPU-.../1/0) are no UUIDs, so there is nothing to compare.
        return
    kind = expected.partition("-")[0]
    try:
        found = [f"{kind}-{name}" for name in visible_uuids(driver)]
    except WrongDeviceError as error:
        raise WrongDeviceError(f"{_told(expected)}: {error}") from error
    if found == [expected]:
        return
    raise WrongDeviceError(
        f"{_told(expected)} and sees {' and '.join(found)}. Something has set "
        f"that variable, or asked CUDA for its devices, before the worker started: look at "
        f"preloads, sitecustomize and the queueing system"
    )


def _told(expected: str) -> str:
    setting = os.environ.get(ENVIRONMENT_VARIABLE)
    told = "is not set" if setting is None else f"is {setting!r}"
    return f"this worker is meant for the GPU {expected} ({ENVIRONMENT_VARIABLE} {told})"


def visible_uuids(driver: Any = None) -> list[str]:
    """Return the UUIDs of the GPUs that this process sees, without what stands before them.

    Raises `WrongDeviceError` if there is no driver, it fails, or it shows no GPU.
    """
    try:
        driver = driver or cudadriver.load()
    except OSError as error:
        raise WrongDeviceError(
            f"there is no NVIDIA driver for this process: {error}. In a container, start it with "
            f"GPUs (`--gpus all`)"
        ) from error
    status, devices = cudadriver.start(driver)
    if status == cudadriver.NO_DEVICE or (not status and not devices):
        raise WrongDeviceError(
            "the process sees none: has a queueing system hidden it, or set that variable to one "
            "that is not there? Compare with `nvidia-smi -L`"
        )
    if status:
        raise WrongDeviceError(
            f"the NVIDIA driver does not answer (cuInit says {status}): try `nvidia-smi` here"
        )
    return [_uuid(driver, number) for number in range(devices)]


def _uuid(driver: Any, number: int) -> str:
    device = ctypes.c_int(0)
    raw = (ctypes.c_ubyte * 16)()
    # The second version tells parts (MIG) apart; drivers before 11.4 lack it.
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    status = driver.cuDeviceGet(ctypes.byref(device), number) or ask(ctypes.byref(raw), device)
    if status:
        raise WrongDeviceError(
            f"the NVIDIA driver does not report device {number} (error {status})"
        )
    return str(uuid.UUID(bytes=bytes(raw)))
