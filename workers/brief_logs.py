"""A preload for workers: a failed task is one line in the log, since its traceback travels.

distributed logs each failure with its traceback on the worker, and raises it again where the
result is asked for. The line stays, for results that nobody asks for.
"""

from __future__ import annotations

import logging
from typing import Any

_LOGGER = logging.getLogger("distributed.worker")


def _shorten(record: logging.LogRecord) -> bool:
    if record.getMessage().startswith("Compute Failed\n"):
        lines = [line.split(":", 1) for line in record.getMessage().splitlines() if ":" in line]
        told = {line[0]: line[1].strip() for line in reversed(lines)}
        record.msg = f"task {told.get('Key')} failed: {told.get('Exception')}"
        record.args = ()
    return True


def dask_setup(worker: Any) -> None:
    """Shorten this process's log lines; called by distributed as a worker starts."""
    _LOGGER.addFilter(_shorten)


def dask_teardown(worker: Any) -> None:
    """Stop shortening; called by distributed as a worker ends."""
    _LOGGER.removeFilter(_shorten)
