"""The buffer pool: reuse, bounds, and nothing shared that is still in use."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gpusched.fusion.memory import SMALLEST, BufferPool

SHAPE = (SMALLEST // 4,)
FLOAT = np.dtype("float32")


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_is_lent_again_only_when_nothing_refers_to_it() -> None:
    pool = BufferPool(limit=1 << 24)
    first = pool.empty(SHAPE, FLOAT)
    view = first[10:20].reshape(2, 5)
    where = address(first)
    del first
    gc.collect()
    assert address(pool.empty(SHAPE, FLOAT)) != where
    del view
    gc.collect()
    assert pool.held() >= SMALLEST
    assert where in {address(a) for a in [pool.empty(SHAPE, FLOAT) for _ in range(3)]}


def test_free_buffers_are_bounded() -> None:
    pool = BufferPool(limit=3 * SMALLEST)
    arrays = [pool.empty(SHAPE, FLOAT) for _ in range(10)]
    del arrays
    gc.collect()
    assert 0 < pool.held() <= 3 * SMALLEST
    pool.clear()
    assert pool.held() == 0


def test_small_and_huge_arrays_are_not_pooled() -> None:
    pool = BufferPool(limit=2 * SMALLEST)
    for count in (10, SMALLEST):
        array = pool.empty((count,), FLOAT)
        assert array.flags.owndata
        del array
    assert pool.held() == 0


def test_many_threads_never_share_a_buffer() -> None:
    pool = BufferPool(limit=1 << 24)

    def use(number: int) -> bool:
        array = pool.empty(SHAPE, FLOAT)
        array[:] = number
        other = pool.empty(SHAPE, FLOAT)
        other[:] = -number
        return bool((array == number).all() and (other == -number).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(200)))
