"""What a nanny logs."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest
from distributed import Nanny

from gpusched.workers import affinity
from gpusched.workers.nanny import DeviceNanny


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


@pytest.mark.parametrize(
    ("load", "cores", "seconds"), [(0.5, 2, 5.0), (6.0, 2, 15.0), (99.0, 2, 30.0), (8.0, 8, 5.0)]
)
def test_worker_has_longer_to_end_on_a_busy_machine(
    load: float, cores: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    async def close(self: Nanny, timeout: float, reason: str) -> None:
        found.append(timeout)

    monkeypatch.setattr(Nanny, "close", close)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(affinity, "allowed_cpus", lambda: tuple(range(cores)))
    nanny = object.__new__(DeviceNanny)
    asyncio.run(nanny.close())
    asyncio.run(nanny.close(timeout=1))
    assert found == [seconds, 1]
