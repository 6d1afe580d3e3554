"""Threads that start together, and policies that leave no thread or process behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from gpusched import threadsafe

Together = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Check that closing the policies ends every thread and process of theirs."""
    yield
    threadsafe.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("gpusched ")] == []
    children = map(_command, psutil.Process().children())
    assert [command for command in children if "gpusched.threadsafe.child" in command] == []


def _command(process: psutil.Process) -> list[str]:
    """Return the command line of a process that runs; of others that have ended none is left."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture
def together() -> Together:
    """Give a function that calls functions in a thread each, which start at the same moment."""

    def run(*functions: Callable[[], Any]) -> list[Any]:
        barrier = threading.Barrier(len(functions))

        def start(function: Callable[[], Any]) -> Any:
            barrier.wait(60)
            return function()

        with ThreadPoolExecutor(len(functions)) as pool:
            return [future.result(120) for future in [pool.submit(start, f) for f in functions]]

    return run
