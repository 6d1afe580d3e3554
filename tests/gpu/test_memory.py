"""Memory of a GPU's worker: results that do not fit, and page-locked memory that is given back."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusched.graph.programs.program import Program
from gpusched.plan import shortage
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from tests import emulated_gpu
from tests.emulated_gpu import emulator

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture
def device() -> Iterator[Any]:
    from gpusched.workers.device.cuda import CudaDevice

    found = CudaDevice("")
    found.free_unused()
    yield found
    found.pool.limit(0)
    found.free_unused()


@pytest.mark.parametrize("room", [2, 10, 100])
def test_a_whole_result_that_leaves_its_parts_no_room_is_left_on_the_host(
    device: Any, room: int
) -> None:
    x = cupy.asarray(np.random.default_rng(0).random((1024, 1024)))
    steps = [
        ProgramStep(np.add, (Register(0), 1.0), {}, True),
        ProgramStep(np.multiply, (Register(1), Register(0)), {}, True),
    ]
    program = Program(tuple(steps), 1)
    expected = (x + 1) * x
    want = expected.get()
    del expected
    gc.collect()
    device.free_unused()
    between = filled(device)
    # The input, the whole result, and so many bytes, where a part of sixteen takes 512 KiB.
    device.pool.limit(device.held() + x.nbytes + room * 100_000)
    with shortage.in_pieces(16):
        result = program(x)
    on_host = isinstance(result, shortage.HostResult)
    assert on_host == (room < 10)
    assert np.array_equal(result.array if on_host else result.get(), want)
    del between


def filled(device: Any) -> list[Any]:
    """Return arrays in what is free of blocks that arrays of earlier tests have kept parts of."""
    device.pool.limit(device.held())
    found: list[Any] = []
    size = 1 << 20
    while size >= 512:
        try:
            found.append(cupy.empty(size, "u1"))
        except cupy.cuda.memory.OutOfMemoryError:
            size //= 2
    return found


def test_page_locked_memory_is_reused_and_given_back() -> None:
    from gpusched.workers.device import page_locked

    memory = page_locked.PageLockedMemory()
    first = memory.take(5_000_000)
    first[:] = 7
    size = page_locked.rounded(5_000_000)
    assert 5_000_000 <= size <= 5_000_000 * 17 / 16
    view = first[10:20]
    del first
    gc.collect()
    assert memory.held() == 0
    assert view.tolist() == [7] * 10
    del view
    gc.collect()
    assert memory.held() == size
    again = memory.take(4_990_000)
    assert memory.held() == 0
    del again
    gc.collect()
    assert memory.free_unused() == size
    assert memory.held() == 0


def test_no_more_than_a_bound_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusched.workers.device import page_locked

    monkeypatch.setattr(page_locked, "KEPT", 3 * MIB)
    memory = page_locked.PageLockedMemory()
    lent = [memory.take(MIB) for _ in range(10)]
    del lent
    gc.collect()
    assert memory.held() == 3 * MIB
    memory.free_unused()


@pytest.mark.skipif(not emulated_gpu.active, reason="asks the emulated driver")
def test_spilled_results_lock_no_more_than_they_take(device: Any) -> None:
    before = emulator.page_locked()
    values = [cupy.full(5_000_000 // 8, float(k)) for k in range(20)]
    frozen = [device.freeze(value) for value in values]
    del values
    taken = sum(each.nbytes for each in frozen)
    assert taken == 100_000_000
    assert emulator.page_locked() - before <= 1.07 * taken
    for number, each in enumerate(frozen):
        assert (device.thaw(each) == number).all()
    del frozen, each
    gc.collect()
    device.free_unused()
    assert emulator.page_locked() <= before


@pytest.mark.skipif(not emulated_gpu.active, reason="asks the emulated driver")
def test_what_cupy_locks_for_copies_is_given_back(device: Any) -> None:
    device.free_unused()
    before = emulator.page_locked()
    x = cupy.asarray(np.ones(5_000_000))
    cupy.cuda.Device().synchronize()
    assert emulator.page_locked() >= before + x.nbytes
    device.free_unused()
    assert emulator.page_locked() == before


@pytest.mark.parametrize(
    "value",
    [
        np.arange(24.0).reshape(2, 3, 4)[:, ::-1],
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.zeros((0, 3)),
        np.float32(2.5),
        np.arange(5) > 2,
    ],
    ids=["reversed", "fortran", "empty", "scalar", "bool"],
)
def test_values_come_back_as_they_were(device: Any, value: Any) -> None:
    there = cupy.asarray(value)
    back = device.thaw(device.freeze(there))
    assert isinstance(back, cupy.ndarray)
    assert (back.shape, back.dtype) == (there.shape, there.dtype)
    assert np.array_equal(back.get(), np.asarray(value))
    adopted = device.thaw(device.adopt(np.asarray(value)))
    assert np.array_equal(adopted.get(), np.asarray(value))


@pytest.mark.processes
@pytest.mark.skipif(not emulated_gpu.active, reason="asks the emulated driver")
def test_a_client_opens_no_context_for_programs_that_are_to_run_on_gpus() -> None:
    code = """
import ctypes
import cupy, dask.array as da, numpy as np, gpusched
from tests.emulated_gpu import emulator
gpusched.enable()
x = da.from_array(np.ones((1000, 100)), chunks=100)
graphs = [((x + 1) * 2).sum().dask]
y = x.map_blocks(cupy.asarray, meta=np.array((), x.dtype))
z = ((y + 1) * 2).sum(axis=0)
graphs.append(z.__dask_optimize__(z.dask, z.__dask_keys__()))
flags, active = ctypes.c_uint(), ctypes.c_int()
emulator.driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
assert not active.value
found = z.compute(scheduler="sync")
assert isinstance(found, cupy.ndarray) and (found == 4000).all(), found
assert gpusched.statistics().launches
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
