"""A preload for workers: what is wrong with the disk that they spill to.

``disk-full``: once `FULL` bytes are in a worker's files it writes none for `SECONDS`.
``disk-slow``: writing and reading take as long as a disk of `BANDWIDTH` would.
Both are done where files are written, so that they need no privileges; the fault of another name,
``killed``, is done by who watches the processes.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any

from dask.typing import Key
from distributed import Worker

from gpusched.workers.memory.spillfiles import SpillFiles

VARIABLE = "GPUSCHED_BENCHMARK_FAULT"
FAULTS = "none", "killed", "disk-full", "disk-slow"
FULL = 32 << 20
SECONDS = 10.0
BANDWIDTH = 30e6
"""Bytes per second."""


def dask_setup(worker: Worker) -> None:
    """Replace the files of a worker's store; called by distributed before it starts."""
    replaced = {"disk-full": FullFiles, "disk-slow": SlowFiles}.get(os.environ.get(VARIABLE, ""))
    if replaced is not None:
        worker.data.files.__class__ = replaced


class FullFiles(SpillFiles):
    """Files on a disk that is full for a while."""

    full_until: float | None = None

    def __setitem__(self, key: Key, value: object) -> None:
        """Write a value, unless there is no space."""
        now = time.monotonic()
        if self.full_until is None and self.memory_bytes > FULL:
            self.full_until = now + SECONDS
        if self.full_until is not None and now < self.full_until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))
        super().__setitem__(key, value)


class SlowFiles(SpillFiles):
    """Files on a slow disk."""

    def __setitem__(self, key: Key, value: object) -> None:
        """Write a value, and take the time for it."""
        super().__setitem__(key, value)
        _take(value)

    def __getitem__(self, key: Key) -> object:
        """Read a value, and take the time for it."""
        value = super().__getitem__(key)
        _take(value)
        return value


def _take(value: Any) -> None:
    threading.Event().wait(getattr(value, "nbytes", 0) / BANDWIDTH)
