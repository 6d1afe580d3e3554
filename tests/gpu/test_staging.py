"""Chunks are copied to a GPU block by block, the next one while the last one is under way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusched.placed import Placed
from gpusched.serialization.codec import blocks, device, staging
from tests import emulated_gpu

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu
lazy = pytest.mark.skipif(not emulated_gpu.active, reason="asks the emulated GPU: make test-gpu")

BLOCK = 1 << 16


@pytest.fixture
def two_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[staging.Staging]:
    """Give this process two buffers of one short block each."""
    pool = staging.Staging(2, BLOCK)
    monkeypatch.setattr(blocks, "BLOCK", BLOCK)
    monkeypatch.setattr(device, "staging", lambda: pool)
    yield pool
    cupy.cuda.Device().synchronize()


@pytest.fixture
def stream() -> Iterator[Any]:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream


def numbers(nbytes: int) -> np.ndarray:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("nbytes", [0, 5, BLOCK, 2 * BLOCK, 9 * BLOCK + 3])
@pytest.mark.parametrize("wait", [True, False])
def test_two_buffers_are_enough(
    nbytes: int, wait: bool, two_buffers: staging.Staging, stream: Any
) -> None:
    whole = numbers(nbytes)
    data = device.upload(whole.copy(), wait)
    np.testing.assert_array_equal(data.get(), whole)
    assert two_buffers.made <= 2


@lazy
def test_copies_are_under_way_when_the_call_returns(
    two_buffers: staging.Staging, stream: Any
) -> None:
    whole = numbers(2 * BLOCK)
    source = whole.copy()
    data = device.upload(source, wait=False)
    assert emulated_gpu.emulator.pending() >= 2
    source[:] = 0
    # Of another task's thread, whose copies must not take the place of those.
    device.upload(np.zeros(BLOCK, np.uint8))
    np.testing.assert_array_equal(data.get(), whole)


@lazy
def test_a_new_buffer_is_filled_while_the_last_one_is_copied(
    two_buffers: staging.Staging, stream: Any
) -> None:
    device.upload(numbers(BLOCK), wait=False)
    before = emulated_gpu.emulator.pending()
    device.upload(numbers(BLOCK), wait=False)
    assert two_buffers.made == 2
    assert emulated_gpu.emulator.pending() > before  # The first has not been waited for.
    stream.synchronize()
    device.upload(numbers(BLOCK))
    assert two_buffers.made == 2


def test_copies_that_a_worker_keeps_are_there_for_other_threads(stream: Any) -> None:
    from gpusched.workers.device.cuda import CudaDevice
    from gpusched.workers.task_inputs import CountingMover

    mover = CountingMover(CudaDevice("").copies())
    array = np.arange(100_000.0)
    read = []

    def task(values: Any) -> None:
        copy = Placed(mover.to_device(values["x"], wait=False))
        mover.uploaded(values["x"], copy)

    def keep(key: Any, value: np.ndarray, copy: Placed) -> None:
        with cupy.cuda.Stream(non_blocking=True) as other:
            read.append(copy.array.get(stream=other))

    mover.run(task, {"x": array}, keep)
    (found,) = read
    np.testing.assert_array_equal(found, array)
