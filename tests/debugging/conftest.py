"""What the tests of debugging share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import dask
import pytest

from gpusched import enable


@pytest.fixture(autouse=True)
def everything_fuses(tmp_path: Path) -> Iterator[None]:
    """Record every chunk however small, in this thread, with sources kept aside."""
    settings = {
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.fusion.strict": True,
        "gpusched.fusion.cache-directory": str(tmp_path / "cache"),
        "scheduler": "sync",
    }
    with dask.config.set(settings), enable():
        yield


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[FrameType]:
    """Give the frames that were stopped in, by a hook that goes on at once."""
    found: list[FrameType] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: found.append(sys._getframe(1)))
    return found
