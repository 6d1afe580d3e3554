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
    children = [child.cmdline() for child in psutil.Process().children() if child.is_running()]
    assert [command for command in children if "gpusched.threadsafe.child" in command] == []


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
