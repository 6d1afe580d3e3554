"""Raw kernels compiled for the CPU do what the simulator does, and say why where they are not."""

from __future__ import annotations

import itertools
import linecache
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda, float32, int64
from numba.cuda import syncthreads, threadIdx

import gpusched
from gpusched.kernels import DivergenceError, GuardError, KernelError, SimulationError
from gpusched.kernels.errors import NotCompiledError

pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")

WIDTH = 8
_numbers = itertools.count()


def both(
    kernel: Any, blocks: Any, threads: Any, *arguments: Any
) -> tuple[list[Any], list[Any], Any]:
    """Return the arguments after a simulation, after a compiled launch, and the launch's counts."""
    simulated, compiled = (
        [a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)
    )
    kernel.simulate(blocks, threads)(*simulated)
    gpusched.reset_statistics()
    kernel[blocks, threads](*compiled)
    return simulated, compiled, gpusched.statistics()


def check(kernel: Any, blocks: Any, threads: Any, *arguments: Any, rtol: float = 0) -> list[Any]:
    """Assert that a compiled launch does what the simulator does."""
    simulated, compiled, counts = both(kernel, blocks, threads, *arguments)
    assert not counts.breaks
    assert counts.launches == 1
    for one, other in zip(compiled, simulated, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol)
    return compiled


def numbers(*shape: int, dtype: str = "f8") -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


# Kernels that are compiled ----------------------------------------------------------------


def halved(value):
    return value / 2


def elements(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    out[i] = halved(x[i]) + cuda.gridsize(1)


def three_axes(x, out):
    i, j, k = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        out[k, j, i] = x[i, j, k] + cuda.blockDim.y * cuda.gridDim.z + cuda.threadIdx.z


def transposed(x, out):
    tile = cuda.shared.array((WIDTH, WIDTH), dtype=float32)
    row, column = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        value = x[row, column]
        tile[cuda.threadIdx.x, cuda.threadIdx.y] = value
    cuda.syncthreads()
    if row < x.shape[0] and column < x.shape[1]:
        out[column, row] = tile[cuda.threadIdx.x, cuda.threadIdx.y] + value


def block_sums(x, out):
    cells = cuda.shared.array(WIDTH, float32)
    k, i = cuda.threadIdx.x, cuda.grid(1)
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


def scanned(x, out):
    """Needs what it reads before a barrier after it, in a loop that counts."""
    cells = cuda.shared.array(WIDTH, int64)
    k = threadIdx.x
    cells[k] = x[k]
    syncthreads()
    for power in range(3):
        before = cells[k - 2**power] if k >= 2**power else 0
        syncthreads()
        cells[k] += before
        syncthreads()
    out[k] = cells[k]


def counters_of_their_own(x, out):
    """Has as many turns in each thread, but not the same numbers."""
    cells = cuda.shared.array(WIDTH, int64)
    k = cuda.threadIdx.x
    total = 0
    for j in range(k, k + 4):
        cells[k] = j * x[k]
        cuda.syncthreads()
        total += cells[(k + 1) % WIDTH]
        cuda.syncthreads()
    for j in range(6, 0, -2):
        cells[k] = j
        cuda.syncthreads()
        total += cells[(k + j) % WIDTH]
        cuda.syncthreads()
    out[k] = total


def one_name_in_two_loops(x, out):
    """Counts with the same name in a loop and in the one around it, and in one that goes back."""
    cells = cuda.shared.array(WIDTH, int64)
    k = cuda.threadIdx.x
    total = 0
    for r in range(3):
        for r in range(2):
            cells[k] = x[k] + r
            cuda.syncthreads()
            total = 2 * total + cells[(k + 1) % WIDTH]
            cuda.syncthreads()
        total += 10 * r
        for r in range(4, r, -1):  # noqa: B020
            cells[k] = r
            cuda.syncthreads()
            total += cells[WIDTH - 1 - k]
            cuda.syncthreads()
    out[k] = total + r


def chosen(x, out):
    """Has barriers in a branch that all threads take, or none."""
    cells = cuda.shared.array(WIDTH, int64)
    k = cuda.threadIdx.x
    if x[0] > 0:
        cells[k] = x[k]
        cuda.syncthreads()
        out[k] = cells[WIDTH - 1 - k]
    elif x[0] < -100:
        out[k] = -1
        cuda.syncthreads()
    else:
        out[k] = 7


def own_memory(x, out):
    own = cuda.local.array(3, int64)
    cells = cuda.shared.array(WIDTH, int64)
    k = cuda.threadIdx.x
    for j in range(3):
        own[j] = x[k] + j
    cells[k] = own[0]
    cuda.syncthreads()
    for j in range(3):
        if j == 1:
            continue
        out[k] += own[j] * cells[0]
    cuda.threadfence()


def all_atomics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])
        cuda.atomic.sub(out, (1,), x[i])
        cuda.atomic.max(out, 2, x[i])
        cuda.atomic.min(out, 3, x[i])
        cuda.atomic.and_(out, 4, x[i])
        cuda.atomic.or_(out, 5, x[i])
        cuda.atomic.xor(out, 6, x[i])
        cuda.atomic.cas(out, 7, 0, 5)
        cuda.atomic.exch(out, 8, 3)


def grid_stride(x, counts):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, x[i] + 9, 1)


def kernel(value):
    return value + 1


def names_like_ours(x, threads_x, out):
    slot, fault, thread_x, kept_k = kernel(0), 2, threads_x, 4
    cells = cuda.shared.array(WIDTH, int64)
    cells[cuda.threadIdx.x] = slot + x[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = cells[0] + slot + fault + thread_x + kept_k


CASES: dict[Callable[..., Any], tuple[Any, Any, tuple[Any, ...]]] = {
    elements: (3, 8, (numbers(20), np.zeros(20))),
    three_axes: ((2, 1, 3), (2, 4, 2), (numbers(3, 4, 5), np.zeros((5, 4, 3)))),
    transposed: ((2, 2), (8, 8), (numbers(13, 10, dtype="f4"), np.zeros((10, 13), "f4"))),
    block_sums: (4, WIDTH, (numbers(30, dtype="f4"), np.zeros(1, "f4"))),
    scanned: (1, WIDTH, (numbers(WIDTH, dtype="i8"), np.zeros(WIDTH, "i8"))),
    counters_of_their_own: (1, WIDTH, (numbers(WIDTH, dtype="i8"), np.zeros(WIDTH, "i8"))),
    one_name_in_two_loops: (1, WIDTH, (numbers(WIDTH, dtype="i8"), np.zeros(WIDTH, "i8"))),
    own_memory: (1, WIDTH, (numbers(WIDTH, dtype="i8"), np.zeros(WIDTH, "i8"))),
    all_atomics: (2, 8, (numbers(13, dtype="i8"), np.ones(9, "i8"))),
    grid_stride: (2, 8, (numbers(200, dtype="i8"), np.zeros(20, "i4"))),
    names_like_ours: (1, WIDTH, (numbers(WIDTH, dtype="i8"), 3, np.zeros(WIDTH, "i8"))),
}


LONG = {one_name_in_two_loops, counters_of_their_own, scanned}
"""Those that the simulator, or the compiler, takes seconds for."""


@pytest.mark.parametrize(
    "function",
    [pytest.param(f, marks=pytest.mark.slow if f in LONG else (), id=f.__name__) for f in CASES],
)
def test_does_what_the_simulator_does(function: Callable[..., Any]) -> None:
    blocks, threads, arguments = CASES[function]
    check(gpusched.kernel.raw(function), blocks, threads, *arguments)


@pytest.mark.parametrize("first", [1, 0, -200])
def test_barriers_in_a_branch(first: int) -> None:
    x = numbers(WIDTH, dtype="i8")
    x[0] = first
    check(CHOSEN, 1, WIDTH, x, np.zeros(WIDTH, "i8"))


@given(st.integers(0, 40), st.integers(1, 4), st.sampled_from("if"))
@pytest.mark.slow
def test_any_size_dtype_and_stride(size: int, blocks: int, dtype: str) -> None:
    x = numbers(2 * size).astype(dtype)[::2]
    check(SUMS, 3 * blocks, WIDTH, x, np.zeros(1))
    check(ELEMENTS, 2 * blocks, WIDTH, x, np.zeros(2 * size)[::2])


SUMS, ELEMENTS, CHOSEN = map(gpusched.kernel.raw, (block_sums, elements, chosen))


# Any kernel -------------------------------------------------------------------------------

LEAVES = [
    "a = a + x[i % x.size]",
    "b = a * 2 - k",
    "a, b = b, a + 1",
    "cells[k] = a",
    "cuda.syncthreads()",
    "cuda.syncthreads()\ncells[k] = a\ncuda.syncthreads()\nb += cells[(k + 3) % 4]",
    "cuda.syncthreads()\ncells[k] = b - a\ncuda.syncthreads()\na = cells[k ^ 1] + cells[0]",
    "cuda.atomic.add(out, 0, a % 7)",
    "c = a - b",
    "a = c + 1 if k > 1 else b",
]
HEADS = ["for r in range(2):", "if n > 3:", "if k < 2:", "for r in range(k):", "while w{0} < 2:"]


def nested(inner: Any) -> Any:
    return st.tuples(st.sampled_from(HEADS), st.lists(inner, min_size=1, max_size=3))


BODIES = st.lists(
    st.recursive(st.sampled_from(LEAVES), nested, max_leaves=6), min_size=2, max_size=7
)


def written(body: Any, depth: int) -> list[str]:
    lines = []
    for item in body:
        if isinstance(item, str):
            lines += ["    " * depth + line for line in item.splitlines()]
            continue
        turns = f"w{depth}"  # Another for each level, so that every loop ends.
        lines += ["    " * depth + f"{turns} = 0", "    " * depth + item[0].format(depth)]
        lines += ["    " * (depth + 1) + f"{turns} += 1", *written(item[1], depth + 1)]
    return lines


def kernel_of(body: Any) -> Any:
    text = "\n".join([
        "def made(x, out, n):",
        "    cells = cuda.shared.array(4, int64)",
        "    k, i = cuda.threadIdx.x, cuda.grid(1)",
        "    a, b, c = k, 1, 5",
        *written(body, 1),
        "    out[1 + i] = a + 3 * b",
        "",
    ])  # fmt: skip
    filename = f"<made {next(_numbers)}>"
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    scope: dict[str, Any] = {"cuda": cuda, "int64": int64}
    exec(compile(text, filename, "exec"), scope)
    return gpusched.kernel.raw(scope["made"])


@pytest.mark.slow
@given(BODIES, st.integers(2, 5))
def test_any_kernel_that_is_right_is_computed_right(body: Any, n: int) -> None:
    kernel = kernel_of(body)
    x, out = np.arange(1, 6), np.zeros(9, "i8")
    simulated, compiled = out.copy(), out.copy()
    try:
        kernel.simulate(2, 4)(x, simulated, n)
    except SimulationError:
        return
    try:
        found = kernel.host(x, compiled, n)
    except NotCompiledError as reason:
        assert "barrier" in str(reason)  # noqa: PT017  one of the two happens
        return
    found.run((2, 1, 1), (4, 1, 1), (x, compiled, n))
    np.testing.assert_array_equal(compiled, simulated)


# What is wrong ---------------------------------------------------------------------------


def unguarded(x):
    x[cuda.grid(1)] = 1


def before_the_first(x):
    x[cuda.grid(1) - 1, 0] = 1


def huge(x):
    cuda.atomic.add(x, 2**40, 1)


@pytest.mark.parametrize(
    ("function", "shape", "said"),
    [
        (unguarded, 10, r"uses x at 10 along axis 0, whose length is 10"),
        (unguarded, 0, r"uses x at 0 along axis 0, whose length is 0"),
        (before_the_first, (20, 1), r"uses x at -1 along axis 0"),
        (before_the_first, (20, 0), r"uses x at"),
        (huge, 4, r"uses x at 1099511627776 along axis 0"),
    ],
)
def test_an_index_outside_is_an_error_with_the_line(function: Any, shape: Any, said: str) -> None:
    with pytest.raises(GuardError, match=said) as caught:
        gpusched.kernel.raw(function)[2, 8](np.zeros(shape))
    assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno + 1}: ")


def test_threads_that_part_at_a_barrier() -> None:
    def parts(x):
        if cuda.threadIdx.x > 2:
            cuda.syncthreads()
        x[0] = 1

    with pytest.raises(DivergenceError, match="threads of one block do not meet at this"):
        gpusched.kernel.raw(parts)[1, 4](np.zeros(1))


def returns_early(x):
    if cuda.grid(1) >= x.size:
        return
    cuda.syncthreads()
    x[cuda.grid(1)] = 1


def loop_that_is_left(x):
    for _ in range(3):
        cuda.syncthreads()
        if x[0] > 0:
            break


def list_loop(x):
    for _ in (1, 2):
        cuda.syncthreads()


def two_dtypes(x):
    value = 1
    cuda.syncthreads()
    x[cuda.grid(1)] = value
    value = 0.5
    cuda.syncthreads()
    x[cuda.grid(1)] = value


def view(x):
    row = x[1:]
    cuda.syncthreads()
    row[cuda.grid(1)] = 1


def own_parameter(x, n):
    n = n + 1
    cuda.syncthreads()
    x[cuda.grid(1)] = n


def index_of_an_expression(x):
    (x[1:])[cuda.grid(1)] = 1


def helper(x):
    return cuda.grid(1) + x


def helper_with_positions(x):
    x[helper(0)] = 1


def branch_declares(x):
    if x.size > 2:
        cells = cuda.shared.array(4, int64)
        cells[cuda.threadIdx.x] = 1
        x[cuda.threadIdx.x] = cells[cuda.threadIdx.x]


def comprehension(x):
    x[cuda.grid(1)] = sum([n for n in (1, 2)])  # noqa: C416


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (returns_early, "a thread may return before a barrier"),
        (loop_that_is_left, "a loop around a barrier has a break"),
        (list_loop, "over something else than a range"),
        (two_dtypes, "value, kept over a barrier, is float64 and int64"),
        (view, "row, kept over a barrier, is array"),
        (own_parameter, "assigns to its parameter n"),
        (index_of_an_expression, "an index into an expression"),
        (helper_with_positions, "it calls helper, which uses numba.cuda itself"),
        (branch_declares, "cuda.shared.array where the CPU has nothing like it"),
        (comprehension, "a comprehension"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_stays_in_the_simulator_is_counted_with_the_reason(function: Any, reason: str) -> None:
    arguments = (np.zeros(8), 1)[: function.__code__.co_argcount]
    kernel = gpusched.kernel.raw(function)
    with pytest.raises(NotCompiledError, match=reason):
        kernel.host(*arguments)
    _, _, counts = both(kernel, 1, 4, *arguments)
    ((name, said),) = counts.breaks
    assert name == function.__name__
    assert str(said).startswith("a raw kernel runs in the simulator: ")
    assert counts.launches == 0


@pytest.mark.parametrize("dtype", ["O", "f2", ">f8"])
def test_other_arguments_are_simulated(dtype: str) -> None:
    gpusched.reset_statistics()
    x = np.zeros(3, dtype)
    gpusched.kernel.raw(unguarded)[1, 3](x)
    assert x.tolist() == [1, 1, 1]
    ((_, said),) = gpusched.statistics().breaks
    assert "numba cannot compile it" in str(said) or "an argument is >f8" in str(said)


def test_arrays_that_are_only_read_may_be_read_only() -> None:
    x = numbers(20)
    x.flags.writeable = False
    out = np.zeros(20)
    ELEMENTS[3, 8](x, out)
    np.testing.assert_array_equal(out, x / 2 + 24)


def test_files_in_memory(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "values", "f8", "w+", shape=(20,))
    ELEMENTS[3, 8](numbers(20), mapped)
    np.testing.assert_array_equal(mapped, numbers(20) / 2 + 24)


def only_a_barrier(x):
    cuda.syncthreads()


def only_memory(x):
    cells = cuda.shared.array(4, int64)  # noqa: F841


def nothing(x):
    pass


@pytest.mark.parametrize("function", [only_a_barrier, only_memory, nothing])
def test_kernels_that_do_nothing(function: Any) -> None:
    check(gpusched.kernel.raw(function), 2, 3, np.ones(2))


def test_wrong_launches() -> None:
    with pytest.raises(KernelError, match="takes 2 arguments; 1 were given"):
        ELEMENTS[1, 1](np.zeros(1))
    with pytest.raises(KernelError, match="positive numbers, not 0"):
        ELEMENTS[0, 1](np.zeros(1), np.zeros(1))


# Once, everywhere ------------------------------------------------------------------------


@pytest.mark.slow
def test_compiled_once_and_anew_when_what_it_reads_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, out = gpusched.kernel.raw(block_sums), np.zeros(1, "f4")
    kernel[1, WIDTH](np.ones(20, "f4"), out)
    gpusched.reset_statistics()
    kernel[2, WIDTH](np.ones(9, "f4"), out)
    assert gpusched.statistics().compilations == 0
    assert out[0] == WIDTH + 9
    monkeypatch.setitem(globals(), "WIDTH", 4)
    kernel[1, 4](np.ones(20, "f4"), out)
    assert gpusched.statistics().compilations == 1
    assert out[0] == 17 + 4


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_travels_with_its_text(dumps: Callable[..., bytes]) -> None:
    text = dumps(gpusched.kernel.raw(elements))
    linecache.clearcache()
    again = pickle.loads(text)
    check(again, 3, 8, numbers(20), np.zeros(20))


def test_atomics_of_several_launches_at_once() -> None:
    counts = np.zeros(20, "i8")
    x = numbers(50_000, dtype="i8")
    kernel = gpusched.kernel.raw(grid_stride)
    threads = [threading.Thread(target=kernel[4, 32], args=(x, counts)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(counts, 8 * np.bincount(x + 9, minlength=20))


def test_the_source_can_be_read() -> None:
    source = ELEMENTS.host(np.zeros(1), np.zeros(1)).source
    assert "def kernel(x, out, blocks_x" in source
    assert numba.cuda.__name__ not in source
