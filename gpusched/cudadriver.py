"""NVIDIA's driver, asked by its library alone: whether there is one, and for how many GPUs."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

LIBRARY = "libcuda.so.1"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE, also where CUDA_VISIBLE_DEVICES names none that is there."""


class Answer(NamedTuple):
    """What the driver says of the GPUs that this process sees."""

    status: int
    """0, or the number of an error in CUDA's list."""
    devices: int
    """How many there are; 0 where there is an error."""


def load() -> Any:
    """Return the driver's library.

    Raises
    ------
    OSError
        If there is none.
    """
    return ctypes.CDLL(LIBRARY)


def start(driver: Any) -> Answer:
    """Start the driver in this process, and return which GPUs it shows."""
    count = ctypes.c_int(0)
    status = int(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)))
    return Answer(status, 0 if status else count.value)
