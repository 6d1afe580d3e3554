"""Keeps distributed's own reports out of a run's output, where they say nothing to its user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from distributed.client import AllExit
from distributed.utils import silence_logging_cmgr


@contextmanager
def warnings_only() -> Iterator[None]:
    """Log distributed's warnings and errors, and nothing about results that nobody waits for.

    Put it around the session, because connections go on reporting after they are closed.
    """
    asyncio = logging.getLogger("asyncio")
    asyncio.addFilter(_is_news)
    try:
        with silence_logging_cmgr(level=logging.WARNING, root="distributed"):
            yield
    finally:
        asyncio.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    # Raised where a script was interrupted while it waited for results.
    return not (record.exc_info and isinstance(record.exc_info[1], AllExit))
