"""Handles in cycles are deleted by the thread that the policy lets in, whoever else collects."""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpusched import threadsafe
from gpusched.threadsafe import unreferenced_handles as module
from gpusched.threadsafe.unreferenced_handles import Unreferenced
from tests.threadsafe import fragile


class Cyclic:
    """Refers to itself, and tells in which threads such were deleted."""

    def __init__(self, deleted: list[int]) -> None:
        self.deleted = deleted
        self.itself = self

    def __del__(self) -> None:
        self.deleted.append(threading.get_ident())


@pytest.fixture
def deleted() -> list[int]:
    return []


@pytest.fixture
def full(deleted: list[int]) -> Unreferenced:
    """Give as many as are collected together."""
    gone = Unreferenced()
    for _ in range(module._MOST):
        gone.append([Cyclic(deleted)])
    return gone


def test_another_thread_collects_first(
    full: Unreferenced, deleted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect() -> None:
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        gc.collect()

    monkeypatch.setattr(module, "gc", SimpleNamespace(callbacks=gc.callbacks, collect=collect))
    full.delete()
    assert deleted == [threading.get_ident()] * module._MOST


def test_another_collection_runs(full: Unreferenced, deleted: list[int]) -> None:
    """They are kept until the next time."""

    def during(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            full.delete()

    gc.callbacks.append(during)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(during)
    gc.collect()
    assert deleted == []
    full.delete()
    assert len(deleted) == module._MOST


def test_no_callback_is_left(full: Unreferenced) -> None:
    before = list(gc.callbacks)
    full.delete()
    assert gc.callbacks == before


def test_thread_of_a_policy_does_not_keep_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cycle would be let go while that is referred to, and be left to any thread."""
    references: list[int] = []
    is_gone, delete = threading.Event(), Unreferenced.delete

    def look(self: Unreferenced) -> None:
        assert is_gone.wait(60)
        for only in self._found:
            if isinstance(only[0], fragile.Leaky):
                references.append(sys.getrefcount(only[0]))
        delete(self)

    monkeypatch.setattr(Unreferenced, "delete", look)
    library: Any = threadsafe.wrap(fragile, "one_thread(last)")
    leaky = library.Leaky(2)
    del leaky
    is_gone.set()
    library.add(1, 1)
    # The list's and the argument's.
    assert references == [2]
