"""The check, from inside a worker, that it has got the GPU that it was meant to."""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any

from gpusched.workers.devices import ENVIRONMENT_VARIABLE


class WrongDeviceError(RuntimeError):
    """A worker sees another GPU than its own, or more than one."""


def check(expected: str, driver: Any = None) -> None:
    """Ask the driver which GPUs this process sees; there must be one, the expected.

    Parameters
    ----------
    expected
        The GPU's UUID as NVML gives it; empty to check nothing.
    driver
        Stands for ``libcuda.so.1`` in tests.

    Raises
    ------
    WrongDeviceError
        If the process sees another GPU, several or none.

    Examples
    --------
    >>> from gpusched.workers import pinning
    >>> pinning.check("")
    """
    if not expected or "/" in expected:
        # The older names of parts (MIG-GPU-.../1/0) are no UUIDs, so there is nothing to compare.
        return
    kind = expected.partition("-")[0]
    found = [f"{kind}-{name}" for name in visible_uuids(driver)]
    if found == [expected]:
        return
    setting = os.environ.get(ENVIRONMENT_VARIABLE)
    raise WrongDeviceError(
        f"this worker is meant for the GPU {expected} and sees "
        f"{' and '.join(found) if found else 'none'}; {ENVIRONMENT_VARIABLE} is {setting!r}. "
        f"Something has set that variable, or asked CUDA for its devices, before the worker "
        f"started: look at preloads, sitecustomize and the batch system"
    )


def visible_uuids(driver: Any = None) -> list[str]:
    """Return the UUIDs of the GPUs that this process sees, without what stands before them."""
    try:
        driver = driver or ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise WrongDeviceError(f"no NVIDIA driver in this process: {error}") from error
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        raise WrongDeviceError(f"the NVIDIA driver does not answer (cuInit says {status})")
    return [_uuid(driver, number) for number in range(count.value)]


def _uuid(driver: Any, number: int) -> str:
    device = ctypes.c_int(0)
    raw = (ctypes.c_ubyte * 16)()
    # The second version tells parts (MIG) apart; drivers before 11.4 lack it.
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    status = driver.cuDeviceGet(ctypes.byref(device), number) or ask(ctypes.byref(raw), device)
    if status:
        raise WrongDeviceError(f"the NVIDIA driver does not tell device {number} (error {status})")
    return str(uuid.UUID(bytes=bytes(raw)))
