"""Raw kernels in the simulator: right ones give their results, wrong ones the line."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import dask.array as da
import numpy as np
import pytest
from numba import cuda, float32

import gpusched
from gpusched.kernels import (
    DivergenceError,
    GuardError,
    KernelError,
    RaceError,
    UninitialisedError,
)

pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")

WIDTH = 32


def scaled(x, factor):
    return x * factor


@gpusched.kernel.raw
def scale(x, factor, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = scaled(x[i], factor)


@gpusched.kernel.raw
def block_sums(x, out):
    cells = cuda.shared.array(WIDTH, float32)
    k = cuda.threadIdx.x
    i = cuda.grid(1)
    cells[k] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = WIDTH // 2
    while step > 0:
        if k < step:
            cells[k] += cells[k + step]
        cuda.syncthreads()
        step //= 2
    if k == 0:
        cuda.atomic.add(out, 0, cells[0])


@gpusched.kernel.raw
def transpose(x, out):
    tile = cuda.shared.array((8, 8), dtype=float32)
    row, column = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[cuda.threadIdx.x, cuda.threadIdx.y] = x[row, column]
    cuda.syncthreads()
    if row < x.shape[0] and column < x.shape[1]:
        out[column, row] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


@gpusched.kernel.raw
def histogram(x, counts):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, x[i], 1)


@pytest.mark.parametrize("backwards", [False, True])
def test_elements(backwards: bool) -> None:
    x = np.arange(50.0)
    out = np.zeros(50)
    scale.simulate(4, 16, backwards)(x, 2.0, out)
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.parametrize("backwards", [False, True])
def test_shared_memory_barriers_and_atomics(backwards: bool) -> None:
    x = np.random.default_rng(0).random(100).astype("f4")
    out = np.zeros(1, "f4")
    block_sums.simulate(4, WIDTH, backwards)(x, out)
    assert out[0] == pytest.approx(x.sum(), rel=1e-6)


def test_two_axes() -> None:
    x = np.random.default_rng(0).random((13, 10)).astype("f4")
    out = np.zeros((10, 13), "f4")
    transpose.simulate((2, 2), (8, 8))(x, out)
    np.testing.assert_array_equal(out, x.T)


def test_grid_stride() -> None:
    x = np.random.default_rng(0).integers(0, 5, 200)
    counts = np.zeros(5, "i8")
    histogram.simulate(2, 16)(x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x))


def test_a_launch_on_numpy_is_compiled_and_counted() -> None:
    gpusched.reset_statistics()
    out = np.zeros(3)
    scale[1, 4](np.ones(3), 2.0, out)
    assert out.tolist() == [2, 2, 2]
    counts = gpusched.statistics()
    assert (counts.kernels, counts.breaks) == ({"scale": 1}, {})


def line_of(function: Any, text: str) -> str:
    """Return ``file:line`` of the one line of a function that contains `text`."""
    lines, first = inspect.getsourcelines(function)
    (number,) = (first + k for k, line in enumerate(lines) if text in line)
    return re.escape(f"{__file__}:{number}")


def unguarded(x, out):
    i = cuda.grid(1)
    out[i] = x[i] * 2


def wraps_around(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i - 1]


def neighbours_in_place(x, out):
    i = cuda.grid(1)
    if 0 < i < x.size:
        x[i] = x[i - 1] + 1  # races


def same_element(x, out):
    out[0] = cuda.grid(1)  # races


def counts_without_atomics(x, out):
    out[0] += 1  # races


def forgets_the_barrier(x, out):
    cells = cuda.shared.array(WIDTH, float32)
    k = cuda.threadIdx.x
    cells[k] = x[k]
    out[k] = cells[WIDTH - 1 - k]  # no barrier


def forgets_the_second_barrier(x, out):
    cells = cuda.shared.array(WIDTH, float32)
    k = cuda.threadIdx.x
    cells[k] = x[k]
    cuda.syncthreads()
    out[k] = cells[WIDTH - 1 - k]
    cells[k] = 0


def mixes_atomics(x, out):
    if cuda.grid(1) == 0:
        out[0] = 1
    cuda.atomic.add(out, 0, 1)  # races


def returns_early(x, out):
    if cuda.threadIdx.x > 20:
        return
    cuda.syncthreads()  # diverges


def two_barriers(x, out):
    if cuda.threadIdx.x > 20:
        cuda.syncthreads()  # one
    else:
        cuda.syncthreads()  # other


def reads_what_nobody_wrote(x, out):
    cells = cuda.shared.array(2 * WIDTH, float32)
    cells[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    out[cuda.threadIdx.x] = cells[WIDTH + cuda.threadIdx.x]  # never written


WRONG = [
    (unguarded, 2, GuardError, "out[i] =", r"thread 18 of block 1 uses x\[50\].*shape \(50,\)"),
    (wraps_around, 2, GuardError, "out[i] =", r"thread 0 of block 0 uses x\[-1\]"),
    (neighbours_in_place, 2, RaceError, "# races", "with no barrier between"),
    (same_element, 1, RaceError, "# races", "writes an element of out that thread 0 of block 0"),
    (counts_without_atomics, 1, RaceError, "# races", "with no barrier between"),
    (forgets_the_second_barrier, 1, RaceError, "out[k] =", "shared array of line"),
    (mixes_atomics, 2, RaceError, "# races", "has written in"),
    (returns_early, 1, DivergenceError, "# diverges", "thread 21 of block 0 has returned"),
    (two_barriers, 1, DivergenceError, "# other", "do not meet at one barrier"),
    (reads_what_nobody_wrote, 1, UninitialisedError, "# never", "which no thread has written"),
]


@pytest.mark.parametrize(
    ("function", "blocks", "error", "text", "reason"), WRONG, ids=[w[0].__name__ for w in WRONG]
)
def test_what_is_wrong_is_found_with_the_line(
    function: Any, blocks: int, error: Any, text: str, reason: str
) -> None:
    x, out = np.ones(50), np.zeros(64)
    with pytest.raises(error, match=f"{line_of(function, text)}: .*{reason}"):
        gpusched.kernel.raw(function).simulate(blocks, 32)(x, out)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_missing_barrier_is_found_in_any_order(backwards: bool) -> None:
    kernel = gpusched.kernel.raw(forgets_the_barrier)
    with pytest.raises((RaceError, UninitialisedError), match=line_of(forgets_the_barrier, "# no")):
        kernel.simulate(1, 32, backwards)(np.ones(50), np.zeros(64))


def test_blocks_are_never_in_order() -> None:
    with pytest.raises(RaceError, match="nothing orders two blocks"):
        gpusched.kernel.raw(same_element).simulate(2, 1)(np.ones(1), np.zeros(1))


def test_local_memory() -> None:
    @gpusched.kernel.raw
    def smooth(x, out):
        own = cuda.local.array(3, float32)
        for k in range(3):
            own[k] = x[cuda.grid(1) + k]
        out[cuda.grid(1)] = own[0] + own[1] + own[2]

    out = np.zeros(4)
    smooth.simulate(1, 4)(np.arange(6.0), out)
    assert out.tolist() == [3, 6, 9, 12]


def test_what_the_simulator_lacks_is_said() -> None:
    @gpusched.kernel.raw
    def shuffles(x):
        x[cuda.grid(1)] = cuda.shfl_sync(-1, 1, 0)

    with pytest.raises(KernelError, match=r"the simulator has no cuda\.shfl_sync"):
        shuffles.simulate(1, 1)(np.zeros(1))


def test_wrong_launches() -> None:
    with pytest.raises(KernelError, match="positive numbers, not 0"):
        scale.simulate(0, 4)(np.ones(3), 1, np.ones(3))
    with pytest.raises(KernelError, match="takes 3 arguments; 1 were given"):
        scale.simulate(1, 4)(np.ones(3))
    with pytest.raises(KernelError, match=r"launch as scale\[blocks, threads\]"):
        scale[1]  # type: ignore[index]


def test_in_chunks_of_a_dask_array() -> None:
    def launched(block):
        out = np.empty_like(block)
        scale[2, 16](block, 3.0, out)
        return out

    x = da.arange(40.0, chunks=20)
    with gpusched.enable():
        found = (x.map_blocks(launched, dtype="f8", meta=np.empty(0)) + 1).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(40.0) * 3 + 1)


def test_pickling() -> None:
    again = pickle.loads(pickle.dumps(block_sums))
    out = np.zeros(1, "f4")
    again.simulate(1, WIDTH)(np.ones(20, "f4"), out)
    assert out[0] == 20


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)], ids=str)
def test_machine_code(cc: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    compiled = block_sums.compile("float32[:]", "float32[:]", cc=cc)
    assert compiled.cubin[:4] == b"\x7fELF"
    assert "BAR.SYNC" in compiled.sass()
    compiled = scale.compile("float32[:]", "float32", "float32[:]", cc=cc)
    assert "F64" not in compiled.sass()
    assert transpose.compile("float32[:,:]", "float32[:,:]", cc=cc).name == "transpose"


@pytest.mark.gpu
def test_cupy_arrays_on_the_stream_of_the_thread() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    values = np.arange(70_000, dtype="float32")  # Blocks enough that numba-cuda does not warn.
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.asarray(values)
        out = cupy.full(x.shape, np.nan, "float32")
        scale[274, 256](x, np.float32(3), out)
        assert np.array_equal(out.get(stream=stream), values * 3)
