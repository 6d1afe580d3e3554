"""The emulated driver in this process, and what tests ask of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from . import build

driver: ctypes.CDLL
"""The emulated libcuda.so.1, once `load` has run."""


def load() -> None:
    """Load the emulated libraries under the names by which CUDA's users ask for them.

    A library that is loaded is found by its name (SONAME) from then on, wherever it lies.
    """
    global driver
    found = build.libraries()
    driver = ctypes.CDLL(str(found[build.DRIVER]), mode=ctypes.RTLD_GLOBAL)
    for name, path in found.items():
        if name != build.DRIVER:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    driver.emulator_in_use.restype = ctypes.c_size_t
    driver.emulator_page_locked.restype = ctypes.c_size_t
    driver.emulator_imported.restype = ctypes.c_size_t


def pending() -> int:
    """Return how many operations wait on streams."""
    return driver.emulator_pending()


def in_use(device: int = 0) -> int:
    """Return the bytes of a device's memory that are allocated."""
    return driver.emulator_in_use(device)


def page_locked() -> int:
    """Return the bytes of host memory that are page-locked."""
    return driver.emulator_page_locked()


def imported() -> int:
    """Return the bytes of other processes' device memory that are open here."""
    return driver.emulator_imported()


def launches() -> int:
    """Return how many kernels have run."""
    return (ctypes.c_uint64 * 1).in_dll(driver, "emulator_counts")[0]


def fail_allocation(number: int) -> None:
    """Have the `number`-th allocation from now fail for want of memory."""
    driver.emulator_fail_allocation(ctypes.c_long(number))


def fail_launch(number: int) -> None:
    """Have the `number`-th kernel from now access an illegal address, which ends the context."""
    driver.emulator_fail_launch(ctypes.c_long(number))


def lose_device(number: int) -> None:
    """Have the device lost at the `number`-th kernel from now: off the bus, for NVML too."""
    driver.emulator_lose_device(ctypes.c_long(number))


def set_copy_rate(rate: int) -> None:
    """Have copies between host and device take their time: bytes per second, 0 for none."""
    driver.emulator_set_copy_rate(ctypes.c_long(rate))


def heal() -> None:
    """Take back a lost context, which no CUDA process can: for tests that share a process."""
    driver.emulator_set_failure(0)


@contextmanager
def opened() -> Iterator[None]:
    """Let the host read and write device memory inside the ``with`` block."""
    driver.emulator_open()
    try:
        yield
    finally:
        driver.emulator_close()
