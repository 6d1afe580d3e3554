"""What tests of users' functions share."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest

from gpusched.graph import enable
from gpusched.graph.passes import unsplitting
from gpusched.graph.running import remembered
from gpusched.newest import Newest
from gpusched.store import processors
from gpusched.store.statistics import reset_statistics

SETTINGS = {
    "gpusched.fusion.strict": True,
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.minimum-operations": 0,
}


@pytest.fixture
def everything_fused() -> Iterator[None]:
    """Fuse every chunk that can be, however small, and begin with no counts."""
    with dask.config.set(SETTINGS), enable():
        reset_statistics()
        yield


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels as plain Python does, where each function of a test has others."""
    monkeypatch.setattr(processors, "interpreted", lambda: True)


@pytest.fixture
def plain_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run tasks one after the other, without kernels, of graphs that are for two threads."""
    monkeypatch.setattr(unsplitting, "threads", lambda: 2)
    with dask.config.set({"gpusched.fusion.compile": "off", "scheduler": "sync"}):
        yield


@pytest.fixture
def no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without plans of functions that other tests have defined with the same code."""
    monkeypatch.setattr(remembered, "_by_content", Newest(remembered.CONTENTS))
