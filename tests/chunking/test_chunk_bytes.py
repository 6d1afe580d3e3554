"""Sizes of chunks follow from memory, bandwidth and what a task costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.chunking import choose
from gpusched.chunking.chunk_bytes import A_THREAD, ALIVE, LEAST, MOVED, OVERHEAD
from gpusched.chunking.target import Target

MIB, GIB = 1 << 20, 1 << 30
CPU = Target("cpu", 2, 4 * GIB, 8e9, 60e-6, "2 threads")
GPUS = Target("cuda", 8, 64 * GIB, 8e12, 0.5e-3, "8 workers with a GPU")


@pytest.mark.parametrize(
    ("on", "nbytes"),
    [
        (CPU, 2 * MIB),
        (replace(CPU, task_seconds=0.5e-3), 16 * MIB),
        (replace(CPU, bandwidth=200e9), 64 * MIB),
        (replace(CPU, bandwidth=1e6), LEAST["cpu"]),
        (GPUS, 4 * GIB),
        (replace(GPUS, memory=16 * GIB), GIB),
        (replace(GPUS, bandwidth=1e12, task_seconds=60e-6), 256 * MIB),
        (replace(GPUS, bandwidth=1e9), LEAST["cuda"]),
    ],
)
def test_sizes_by_hand(on: Target, nbytes: int) -> None:
    assert choose(on=on).nbytes == nbytes


targets = st.builds(
    Target,
    st.sampled_from(["cpu", "cuda"]),
    st.integers(1, 10_000),
    st.integers(1 << 22, 1 << 42),
    st.floats(1e6, 1e16),
    st.floats(1e-6, 1e-2),
    st.just("threads"),
)


@given(targets)
def test_tasks_cost_little_unless_memory_ends(on: Target) -> None:
    found = choose(on=on)
    assert found.nbytes & (found.nbytes - 1) == 0
    assert found.nbytes * ALIVE <= max(on.memory, ALIVE << 16)
    busy = MOVED * found.nbytes / on.bandwidth
    assert on.task_seconds <= busy * OVERHEAD * 1.001 or "memory" in found.why


@given(targets, st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_each_thread_gets_several_chunks(on: Target, shape: list[int]) -> None:
    found = choose(tuple(shape), "float32", on=on)
    assert found.chunks is not None
    assert [sum(each) for each in found.chunks] == shape
    assert max(1 << 16, math.prod(shape) * 4 // (A_THREAD * on.threads)) >= found.nbytes
    assert math.prod(max(each) for each in found.chunks) * 4 <= 2 * found.nbytes


def test_why_names_what_counts() -> None:
    assert str(choose(on=CPU)) == (
        "chunks of 2.00 MiB: 2 threads, 8 GB/s in all: 0.786 ms of work for a task that costs "
        "0.06 ms besides"
    )
    assert choose(on=GPUS).why.endswith("16 of them are as much as a thread has memory for")
    assert choose((100, 100), "f8", on=CPU).why.endswith("each thread gets 4 of them")


@pytest.mark.parametrize("dtype", [None, object])
def test_unknown_sizes_of_elements_are_refused(dtype: object) -> None:
    with pytest.raises(TypeError, match="name a numeric dtype"):
        choose((10, 10), dtype, on=CPU)


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,)])
def test_small_arrays_are_one_chunk(shape: tuple[int, ...]) -> None:
    chunks = choose(shape, "float64", on=CPU).chunks
    assert chunks == tuple((n,) for n in shape)
