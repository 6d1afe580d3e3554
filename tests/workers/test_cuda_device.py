"""A worker's GPU: values that other threads copied to it are there when tasks read them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

from tests import emulated_gpu
from tests.emulated_gpu import emulator

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> Any:
    from gpusched.workers.device.cuda import CudaDevice

    return CudaDevice("")


def in_a_thread(function: Callable[[], Any]) -> Any:
    found = []
    thread = Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_an_adopted_value_is_restored_before_a_task_reads_it(device: Any) -> None:
    frozen = device.adopt(np.arange(5.0))
    value = in_a_thread(lambda: device.thaw(frozen))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert value.get(stream=stream).tolist() == [0, 1, 2, 3, 4]


def test_an_unpickled_value_is_copied_before_a_task_reads_it(device: Any) -> None:
    original = cupy.asarray(np.arange(5) > 2)  # Kept, or the copy may lie where it lay.
    sent = pickle.dumps(original)
    value = in_a_thread(lambda: pickle.loads(sent))
    with device.stream() as stream:
        assert value.get(stream=stream).tolist() == [False, False, False, True, True]


@pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu")
def test_a_second_thread_copies_beside_the_kernels_of_the_first(device: Any) -> None:
    chunk = np.arange(300_000.0)

    def copied() -> Any:
        with device.stream() as stream:
            found = device.copies().to_device(chunk)
            assert stream.done
            return found, emulator.launches()

    with device.stream() as stream:
        x = cupy.zeros(1000) + 1
        before = emulator.launches()
        found, then = in_a_thread(copied)
        # The copy is done, and the kernel has not run, since nobody has waited for it.
        assert then == before
        assert x.get(stream=stream).sum() == 1000
        assert emulator.launches() == before + 1
        np.testing.assert_array_equal(found.get(stream=stream), chunk)
