"""Explanations say which calls run on a GPU, and what is copied, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.inspection import explanation
from gpusched.inspection.explanation import Explanation
from gpusched.machine import Machine

SHAPE, CHUNKS = (1024, 512), (256, 512)
CHUNK = 256 * 512 * 8


MACHINE = Machine("2026-11-25T00:00:00", "none", 2, 1e10, 2e10, 1e-4, 1e9, 1e8, 2e8, 1e-6)


@pytest.fixture(autouse=True)
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have explanations know of a GPU, which they learn from the workers otherwise."""
    # Measuring one compiles kernels, which takes seconds.
    monkeypatch.setattr(explanation, "machine", lambda: MACHINE)
    settings = {"gpusched.device": "require", "gpusched.fusion.minimum-elements": 4096}
    with dask.config.set(settings):
        yield


def loaded() -> da.Array:
    return da.from_array(np.ones(SHAPE), chunks=CHUNKS)


def lines(found: Explanation) -> list[tuple[str, bool, int, int, int]]:
    return [
        (each.calls, each.on_device, each.tasks, each.bytes_to_device, each.bytes_to_host)
        for stage in found.stages
        for each in stage.devices
    ]


def _own(block: np.ndarray) -> np.ndarray:
    return block * len(f"{block.ndim}")  # Not recorded: it formats a string.


def test_loaded_chunks_are_copied_once() -> None:
    found = gpusched.explain((loaded() * 2 + 1).sum(axis=0))
    assert lines(found)[0] == ("mul, add, sum", True, 4, 4 * CHUNK, 0)
    assert "GPU       mul, add, sum: 4 tasks; 4.00 MiB copied there" in found.text()


def test_chunks_that_the_host_needs_are_copied_back() -> None:
    found = gpusched.explain(da.exp(loaded() * 2 + 1).map_blocks(_own, dtype=float))
    first, second, *_ = lines(found)
    assert first == ("mul, add, exp", True, 4, 4 * CHUNK, 0)
    assert second == ("_own", False, 4, 0, 4 * CHUNK)
    (told,) = (line for line in found.text(width=500).splitlines() if "host  " in line)
    assert "_own: your function" in told
    assert "4.00 MiB copied from the GPU" in told


def test_small_chunks_and_other_dtypes_say_why() -> None:
    small = da.from_array(np.ones(100), chunks=50) * 2 + 1
    text = da.from_array(np.ones(10_000).astype(str), chunks=5000) + "x"
    with dask.config.set({"gpusched.fusion.strict": False}):
        reasons = [each.reason for x in (small, text) for stage in gpusched.explain(x).stages
                   for each in stage.devices]  # fmt: skip
    assert reasons[0] == "small chunks"
    assert "dtype <U32" in reasons[1:]


def test_nothing_is_said_without_a_gpu() -> None:
    with dask.config.set({"gpusched.device": "auto"}):
        found = gpusched.explain(loaded() * 2 + 1)
    assert not found.gpu
    assert not lines(found)
    assert "GPU" not in found.text()
