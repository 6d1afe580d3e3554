"""Whether a scheduler is still there."""

from __future__ import annotations

import asyncio
import errno
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


def taken() -> RuntimeError:
    """Return what distributed raises where a port is taken."""
    error = RuntimeError("Scheduler failed to start.")
    error.__cause__ = OSError(errno.EADDRINUSE, "Address already in use")
    return error


@pytest.mark.parametrize(
    ("port", "host", "told"),
    [
        ("9000", None, "port 9000 is taken: choose another by --port (0 for any that is free)"),
        ("9000,9001", "::1", "port 9000 or 9001 of ::1 is taken: "),
        ("8786", None, "gpusched doctor says which process has it"),
        ("0", "127.0.0.1", "[Errno 98] Address already in use"),
        ("", "127.0.0.1:9000", "[Errno 98] Address already in use"),
    ],
)
def test_port_that_is_taken_is_named(port: str, host: str | None, told: str) -> None:
    assert told in contact.why_not_started(taken(), port, host)


def test_other_causes_are_told_as_they_are() -> None:
    error = RuntimeError("Scheduler failed to start.")
    error.__cause__ = PermissionError(errno.EACCES, "Permission denied")
    assert contact.why_not_started(error, "80", None) == "[Errno 13] Permission denied"
    assert contact.why_not_started(TimeoutError(), "80", None) == "TimeoutError"


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
