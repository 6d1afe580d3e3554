"""Whether a scheduler is still there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import dask
import pytest
from distributed import Scheduler

from gpusched.cluster import contact
from tests.waiting import PATIENCE


async def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        # What is waited for has no event to wait on.
        await asyncio.sleep(0.01)


def test_scheduler_that_is_back_soon_has_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(contact, "_GONE", PATIENCE)
        first = await Scheduler(host="127.0.0.1", port=0, dashboard=False)
        address, port = first.address, first.port
        watch = asyncio.create_task(contact.wait_until_gone(address, {}))
        await wait_for(lambda: first._comms)
        await first.close()
        async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as second:
            await wait_for(lambda: second._comms)
            assert not watch.done()
            monkeypatch.setattr(contact, "_GONE", 0.2)
        await asyncio.wait_for(watch, PATIENCE)

    asyncio.run(main())


def test_scheduler_that_never_was_has_gone() -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
        asyncio.run(contact.wait_until_gone("tcp://127.0.0.1:1", {}))
