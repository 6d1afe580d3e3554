"""Plans whose kernels run together on tiles of rows, of small arrays too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from gpusched import events
from gpusched.plan import tiles
from gpusched.plan.plan import Plan
from gpusched.plan.tiles import TiledLaunches


def make_small(patch: pytest.MonkeyPatch, room: int = 1 << 15) -> None:
    """Let tiles have few rows, also of small arrays."""
    patch.setattr(tiles, "room", lambda: room)
    patch.setattr(tiles._Together, "_is_large", lambda self, registers: False)


def tiles_of(plan: Plan) -> list[TiledLaunches]:
    return [step for step, _, _ in plan.stages if isinstance(step, TiledLaunches)]


def put_some(x: np.ndarray, specials: tuple[float, ...], data: st.DataObject) -> None:
    """Write each of these numbers to some place of a matrix, or to none."""
    for special in specials:
        if data.draw(st.booleans()):
            x[tuple(data.draw(st.integers(0, length - 1)) for length in x.shape)] = special


def profiled(plan: Plan, *arrays: Any) -> tuple[Any, list[events.Event]]:
    """Return a plan's results, and what a profile of its run times of kernels."""
    found = events.start("tiles")
    try:
        result, _ = plan.run(arrays)
    finally:
        events.stop("tiles")
    return result, [event for event in events.taken(found) if event.kind == "kernel"]
