"""The memory of whole runs, in bytes: results from the pool, and never more than dask takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched import enable
from gpusched.backends.buffer_pool import GRANULE, SMALLEST, pool

pytestmark = pytest.mark.slow

ROWS, COLUMNS, CHUNKS = 512, 512, 6
CHUNK = ROWS * COLUMNS * 8
"""Bytes; each array has six chunks."""

SLACK = SMALLEST
"""Bytes for Python's own objects and for arrays that are not chunks."""


class Noting(dict[int, int]):
    """The buffers that are lent, with the most that were at once."""

    most = 0

    def __setitem__(self, key: int, size: int) -> None:
        super().__setitem__(key, size)
        self.most = max(self.most, sum(self.values()))


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    gc.collect()
    pool.clear()
    found = Noting()
    monkeypatch.setattr(pool, "_lent", found)
    # Or else what is free would go, on a machine slow enough.
    monkeypatch.setattr(pool, "give_back", lambda seconds: None)
    yield found
    gc.collect()
    pool.clear()


def field(seed: int = 0) -> da.Array:
    values = np.random.default_rng(seed).random((CHUNKS * ROWS, COLUMNS))
    return da.from_array(values, chunks=(ROWS, COLUMNS)).persist(scheduler="sync")


def ten_operations(x: Any) -> Any:
    return ((((x * 2 + 1) ** 2 - 3) / 7 + 2) * 3 - 1) * 2 + 1


def softmax(block: Any) -> Any:
    exponents = np.exp(block - block.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def regression(x: Any, y: Any) -> Any:
    dx, dy = x - x.mean(axis=0), y - y.mean(axis=0)
    return (dx * dy).sum(axis=0) / (dx**2).sum(axis=0)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "ten-operations": lambda: ten_operations(field()),
    "two-inputs": lambda: da.clip((field() + field(1)) * field() / 2, 0.1, 0.9),
    "sum": lambda: ten_operations(field()).sum(),
    "columns": lambda: ten_operations(field()).std(axis=0),
    "standardised": lambda: (lambda x: (x - x.mean(axis=0)) / x.std(axis=0))(field()),
    "regression": lambda: regression(field(), field(1)),
    "regression-of-results": lambda: regression(
        *(f.map_blocks(np.sort) for f in (field(), field(1)))
    ),
    "softmax": lambda: field().map_blocks(softmax),
    "several": lambda: (lambda x: dask.delayed((x * 2 - 1, x.max(), x + 3)))(field() * 2),
    "sorted": lambda: (field() * 2 + 1).map_blocks(np.sort, axis=1) * 3 - 1,
    "rechunked": lambda: (field() * 2 + 1).rechunk((ROWS // 2, COLUMNS)) * 3 - 1,
    "transposed": lambda: field() * 2 + field(1)[::-1],
}


def taken(program: Any, noted: Noting) -> tuple[int, int]:
    """Return the most bytes that NumPy and Python allocate in a run, and the pool lends.

    Not those of the first run, which compiles.
    """
    found = []
    for _ in range(2):
        gc.collect()
        noted.most = 0
        tracemalloc.start()
        result = program.persist(scheduler="sync")
        found.append((tracemalloc.get_traced_memory()[1], noted.most))
        tracemalloc.stop()
        del result
    return found[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_never_takes_more_than_plain_dask(name: str, lent: Noting) -> None:
    program = PROGRAMS[name]()
    plain, none = taken(program, lent)
    with enable():
        allocated, pooled = taken(program, lent)
    assert none == 0
    assert allocated + pooled <= plain + SLACK
    gc.collect()
    assert not lent


def test_ten_operations_take_their_results_and_nothing_else(lent: Noting) -> None:
    program = PROGRAMS["ten-operations"]()
    with enable():
        allocated, pooled = taken(program, lent)
    assert pooled == CHUNKS * CHUNK
    assert allocated < SLACK
    plain, _ = taken(program, lent)
    assert plain > (CHUNKS + 1) * CHUNK


def test_a_sum_takes_no_chunk_at_all(lent: Noting) -> None:
    with enable():
        allocated, pooled = taken(PROGRAMS["sum"](), lent)
    assert (pooled, allocated < SLACK) == (0, True)


def test_buffers_are_little_larger_than_chunks(lent: Noting) -> None:
    x = da.from_array(np.ones(SMALLEST), chunks=SMALLEST // 4 + 1)
    with enable():
        _, pooled = taken(x * 2 + 1, lent)
    assert x.nbytes <= pooled < x.nbytes + x.npartitions * GRANULE


def test_free_buffers_are_all_that_a_run_leaves(lent: Noting) -> None:
    """As many as its results took, within the limit: the next run takes no memory at all."""
    program = PROGRAMS["ten-operations"]()
    with enable():
        taken(program, lent)
        gc.collect()
        assert pool.held() == CHUNKS * CHUNK
        with dask.config.set({"gpusched.memory.pool-limit": 2 * CHUNK}):
            pool.clear()
            taken(program, lent)
            gc.collect()
            assert pool.held() == 2 * CHUNK
