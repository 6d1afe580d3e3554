"""A preload for workers: one line in the log for a failed task, none for a cancelled one.

distributed logs each failure with its traceback on the worker, and raises it again where the
result is asked for. The line stays, for results that nobody asks for. That a task was cancelled
is not new to whoever cancelled it by closing the cluster; nor is it that a worker which is closing
no longer reaches the scheduler, which no worker of ours logs, with or without this preload.
"""

from __future__ import annotations

import logging
from typing import Any


def _shorten(record: logging.LogRecord) -> bool:
    if record.getMessage().startswith("Compute Failed\n"):
        lines = [line.split(":", 1) for line in record.getMessage().splitlines() if ":" in line]
        told = {line[0]: line[1].strip() for line in reversed(lines)}
        record.msg = f"task {told.get('Key')} failed: {told.get('Exception')}"
        record.args = ()
    return True


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().endswith("ended with CancelledError")


def _is_no_farewell(record: logging.LogRecord) -> bool:
    heartbeat = record.getMessage().startswith("Failed to communicate with scheduler")
    # The thread in a worker's process that listens to its nanny, when Python takes it down.
    listening = record.funcName == "watch_stop_q"
    return not (heartbeat or listening) or _is_any_open()


def _is_any_open() -> bool:
    """Return whether a worker of this process is neither closing nor closed; it may be paused."""
    from distributed.core import Status

    from gpusched.adapters.distributed import worker_instances

    ending = {Status.closing_gracefully, Status.closing, Status.closed}
    return any(worker.status not in ending for worker in worker_instances())


_FILTERS = [
    ("distributed.worker", _shorten),
    ("distributed.worker.state_machine", _is_news),
]


def close_quietly() -> None:
    """Log nothing of a scheduler or nanny that is not reached while this process's workers close.

    Closing cancels the heartbeat that is under way, which distributed logs with a traceback.
    """
    for name in ("distributed.worker", "distributed.nanny"):
        logging.getLogger(name).addFilter(_is_no_farewell)


def dask_setup(worker: Any) -> None:
    """Filter this process's log; called by distributed as a worker starts."""
    for name, log_filter in _FILTERS:
        logging.getLogger(name).addFilter(log_filter)


def dask_teardown(worker: Any) -> None:
    """Leave the filters, which what is cancelled by the end of the worker still has to pass."""
