"""Keeps distributed's own reports out of a run's output, where they say nothing to its user."""

from __future__ import annotations

import logging

from distributed.client import AllExit
from tornado import util


def log_warnings_only() -> None:
    """Log distributed's warnings and errors, and nothing about results that nobody waits for.

    For the rest of this process, because connections go on reporting after they are closed.
    """
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(max(handler.level, logging.WARNING))
    logging.getLogger("asyncio").addFilter(_is_news)
    # Its only warning: a connection within this process was left open as the workers ended.
    logging.getLogger("distributed.comm.inproc").setLevel(logging.ERROR)


def log_nothing_more() -> None:
    """Log only what is critical from now on: workers being killed report what they miss."""
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.CRITICAL)


def _is_news(record: logging.LogRecord) -> bool:
    # AllExit: a script was interrupted while it waited for results. Timeouts: of the connections
    # that wait for something to send while their event loop stops.
    return not (record.exc_info and isinstance(record.exc_info[1], AllExit | util.TimeoutError))
