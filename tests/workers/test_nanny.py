"""What a nanny logs."""

from __future__ import annotations

import asyncio
import logging

import pytest

import gpusched.workers.nanny  # noqa: F401


@pytest.mark.parametrize(
    ("error", "lines"), [(asyncio.CancelledError(), 0), (OSError("no process"), 1)]
)
def test_cancelled_starts_are_no_news(
    error: BaseException, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("distributed.nanny")
    logger.addHandler(caplog.handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        raise error
    except (asyncio.CancelledError, OSError):
        logger.exception("while starting again")
    finally:
        logger.removeHandler(caplog.handler)
        logger.propagate = propagated
    assert len(caplog.records) == lines
