"""The buffer pool: reuse, bounds, and nothing shared that is still in use."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st

from gpusched import enable, reset_statistics, statistics
from gpusched.backends import buffer_pool
from gpusched.backends.buffer_pool import (
    GRANULE,
    HUGE,
    SMALLEST,
    BufferPool,
    configured_keep,
    configured_limit,
    pool,
)
from gpusched.config import ChoiceError

SHAPE = (SMALLEST // 4,)
FLOAT = np.dtype("float32")


def bounded(limit: int, **options: Any) -> BufferPool:
    return BufferPool(lambda: limit, **options)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> Iterator[BufferPool]:
    """The process's own pool, with nothing in it and counters at 0, which keeps what it has."""
    monkeypatch.setattr(pool, "give_back", lambda seconds: None)
    gc.collect()
    pool.clear()
    reset_statistics()
    yield pool
    pool.clear()


def test_a_buffer_is_lent_again_only_when_nothing_refers_to_it() -> None:
    pool = bounded(1 << 24)
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


VIEWS: list[Callable[[np.ndarray], object]] = [
    lambda a: a[::-3],
    lambda a: a[0],
    lambda a: a.T,
    lambda a: np.broadcast_to(a[:1], (2, 2, a.shape[1])),
    lambda a: np.lib.stride_tricks.sliding_window_view(a, (1, 4)),
    lambda a: a.view("u1"),
    lambda a: memoryview(a),
    lambda a: pickle.PickleBuffer(a),
    lambda a: a.flat,
    lambda a: np.frombuffer(a, "u2"),
    lambda a: np.ma.masked_array(a),
    lambda a: a.view(np.recarray),
    lambda a: {"deep": [(a.ravel(),)]},
]


@pytest.mark.parametrize("view", VIEWS)
def test_whatever_shows_a_buffer_keeps_it(view: Callable[[np.ndarray], object]) -> None:
    pool = bounded(1 << 24)
    array = pool.empty((SMALLEST // 16, 16), np.dtype("i1"))
    shown = view(array)
    del array
    gc.collect()
    kept = pool.lent() > 0
    # A scalar is a copy; all else shows the buffer itself.
    assert kept == (not isinstance(shown, np.generic))
    del shown
    gc.collect()
    assert (pool.lent(), pool.held()) == (0, SMALLEST)


def test_a_cycle_gives_its_buffer_back() -> None:
    pool = bounded(1 << 24)
    cycle: list[object] = [pool.empty(SHAPE, FLOAT)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert (pool.lent(), pool.held()) == (0, SMALLEST)


def test_free_buffers_are_bounded() -> None:
    pool = bounded(3 * SMALLEST)
    arrays = [pool.empty(SHAPE, FLOAT) for _ in range(10)]
    assert pool.lent() == 10 * SMALLEST
    del arrays
    gc.collect()
    assert (pool.lent(), pool.held()) == (0, 3 * SMALLEST)
    pool.clear()
    assert pool.held() == 0


def test_what_has_been_free_for_longest_makes_room() -> None:
    """A program whose chunks have another size must not find the pool full for ever."""
    now = 0.0
    pool = bounded(4 * SMALLEST, clock=lambda: now)
    old = [pool.empty(SHAPE, FLOAT) for _ in range(4)]
    del old
    now = 1.0
    larger = pool.empty((SMALLEST // 2,), FLOAT)
    where = address(larger)
    del larger
    gc.collect()
    assert pool.held() == 4 * SMALLEST
    assert address(pool.empty((SMALLEST // 2,), FLOAT)) == where


def test_small_and_huge_arrays_are_not_pooled() -> None:
    pool = bounded(2 * SMALLEST)
    for count in (0, 10, SMALLEST):
        array = pool.empty((count,), FLOAT)
        assert array.flags.owndata
        del array
    assert pool.held() == 0


def test_a_limit_of_nothing_pools_nothing() -> None:
    pool = bounded(0)
    assert pool.empty(SHAPE, FLOAT).flags.owndata
    assert (pool.held(), pool.lent()) == (0, 0)


def test_a_lower_limit_holds_for_what_comes_back() -> None:
    with dask.config.set({"gpusched.memory.pool-limit": "8 MiB"}):
        own = BufferPool(configured_limit)
        arrays = [own.empty(SHAPE, FLOAT) for _ in range(8)]
        with dask.config.set({"gpusched.memory.pool-limit": 2 * SMALLEST}):
            arrays.append(own.empty(SHAPE, FLOAT))
            del arrays
            gc.collect()
    assert own.held() == 2 * SMALLEST


def test_many_threads_never_share_a_buffer() -> None:
    pool = bounded(1 << 24)

    def use(number: int) -> bool:
        array = pool.empty(SHAPE, FLOAT)
        array[:] = number
        other = pool.empty(SHAPE, FLOAT)
        other[:] = -number
        return bool((array == number).all() and (other == -number).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(200)))
    gc.collect()
    assert pool.lent() == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=60))
def test_arrays_in_use_keep_their_values(steps: list[tuple[int, int]]) -> None:
    """Whatever is lent, kept, cut and let go of in whatever order."""
    pool = bounded(6 * SMALLEST)
    kept: list[tuple[np.ndarray, int]] = []
    for number, (what, size) in enumerate(steps):
        if what < 2:
            array = pool.full((size, SMALLEST // 4), number, np.dtype("i4"))
            kept.append((array, number))
        elif what == 2 and kept:
            array, value = kept.pop(size % len(kept))
            kept.append((array[:, ::size], value))
        elif kept:
            del kept[size % len(kept)]
            array = kept[0][0] if kept else None
        assert all((a == value).all() for a, value in kept)
        assert pool.held() <= 6 * SMALLEST


def test_what_is_free_for_long_is_given_back() -> None:
    now = 0.0
    pool = bounded(1 << 24, clock=lambda: now)
    first, second = pool.empty(SHAPE, FLOAT), pool.empty(SHAPE, FLOAT)
    del first
    now = 6.0
    del second
    gc.collect()
    now = 10.0
    pool.give_back(11)
    assert pool.held() == 2 * SMALLEST
    pool.give_back(5)
    assert pool.held() == SMALLEST
    pool.give_back(0)
    assert pool.held() == 0


def test_a_thread_gives_back_what_is_free_and_ends() -> None:
    pool = bounded(1 << 24, keep=lambda: 0.01)
    array = pool.empty(SHAPE, FLOAT)
    keeper = pool._keeper
    assert keeper is not None and keeper.daemon
    assert pool.empty(SHAPE, FLOAT).shape == SHAPE and pool._keeper is keeper
    del array
    gc.collect()
    keeper.join(60)
    assert not keeper.is_alive()
    assert (pool.held(), pool.lent()) == (0, 0)
    again = pool.empty(SHAPE, FLOAT)
    assert pool._keeper is not None
    del again


def test_buffers_are_lent_also_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = bounded(1 << 24, keep=lambda: 60.0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert pool.empty(SHAPE, FLOAT).shape == SHAPE
    assert pool._keeper is None
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda thread: None)
        assert pool.empty(SHAPE, FLOAT).shape == SHAPE
        assert pool._keeper is not None


def test_no_thread_where_buffers_are_kept_for_ever() -> None:
    pool = bounded(1 << 24)
    assert pool.empty(SHAPE, FLOAT).shape == SHAPE
    assert pool._keeper is None


def test_memory_that_runs_out_is_looked_for_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = bounded(1 << 24)
    assert pool.empty(SHAPE, FLOAT).shape == SHAPE
    real, asked = buffer_pool.new_block, []

    def scarce(size: int) -> np.ndarray:
        asked.append(pool.held())
        if pool.held():
            raise MemoryError("no more")
        return real(size)

    monkeypatch.setattr(buffer_pool, "new_block", scarce)
    assert pool.empty((SMALLEST // 2,), FLOAT).nbytes == 2 * SMALLEST
    assert asked == [SMALLEST, 0]


def test_no_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot allocate"):
        buffer_pool.new_block(1 << 62)


@pytest.mark.parametrize("size", [1, GRANULE, HUGE - 1, HUGE, 3 * HUGE + GRANULE])
def test_blocks_are_whole_and_aligned(size: int) -> None:
    block = buffer_pool.new_block(size)
    assert block.nbytes == size
    assert address(block) % (HUGE if size >= HUGE else 4096) == 0
    block[:] = 7
    assert block[0] == block[-1] == 7


def _child(array: np.ndarray, send: Any) -> None:
    made = pool.empty(SHAPE, FLOAT)
    made.fill(2)
    array.fill(3)
    send.send((pool.held(), pool.lent(), address(made) == address(array)))
    send.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.processes
def test_a_fork_has_a_pool_and_memory_of_its_own(emptied: BufferPool) -> None:
    array = emptied.full(SHAPE, 1, FLOAT)
    free = emptied.empty(SHAPE, FLOAT)
    del free
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(array, send))
    process.start()
    send.close()
    assert receive.poll(120)
    assert receive.recv() == (0, SMALLEST, False)
    process.join(60)
    assert process.exitcode == 0
    assert (array == 1).all()
    assert emptied.held() == SMALLEST


def test_arrays_of_the_pool_are_ordinary_arrays() -> None:
    pool = bounded(1 << 24)
    array = pool.full((4, SMALLEST // 4), 5, np.dtype("i4"))
    assert type(array) is np.ndarray
    assert array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
    assert sizeof(array) == array.nbytes == 4 * SMALLEST
    for twin in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array), array.copy()):
        assert type(twin) is np.ndarray and (twin == array).all()
    assert pickle.dumps(array) == pickle.dumps(array.copy())
    assert pool.lent() == 4 * SMALLEST


def test_results_come_from_the_pool_and_are_counted(emptied: BufferPool) -> None:
    x = da.from_array(np.linspace(0, 1, 8 * SMALLEST), chunks=SMALLEST)
    expected = (np.linspace(0, 1, 8 * SMALLEST) + 1) * 2
    with enable(), dask.config.set(scheduler="sync"):
        first = ((x + 1) * 2).persist()
        # The first chunk's result takes the buffer that stood in for it while it was recorded.
        assert (statistics().buffers_made, statistics().buffers_reused) == (8, 1)
        assert emptied.lent() == 8 * 8 * SMALLEST
        del first
        gc.collect()
        second = ((x + 1) * 2).persist()
        assert (statistics().buffers_made, statistics().buffers_reused) == (8, 9)
        np.testing.assert_allclose(second.compute(), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("value", "expected"), [("3 MiB", 3 << 20), (4096, 4096), (0, 0), ("0", 0), (1.0, 1)]
)
def test_limits(value: object, expected: int) -> None:
    with dask.config.set({"gpusched.memory.pool-limit": value}):
        assert configured_limit() == expected


def test_a_fraction_is_of_the_machine() -> None:
    from distributed.system import MEMORY_LIMIT

    with dask.config.set({"gpusched.memory.pool-limit": 0.25}):
        assert configured_limit() == MEMORY_LIMIT // 4


@pytest.mark.parametrize("value", ["lots", None, True, -1, "-1 MiB", float("nan"), [1], {}])
def test_bad_limits(value: object) -> None:
    with (
        dask.config.set({"gpusched.memory.pool-limit": value}),
        pytest.raises(ChoiceError, match=r"pool-limit cannot be .*write a size"),
    ):
        configured_limit()


@pytest.mark.parametrize(("value", "expected"), [("2 s", 2.0), (60, 60.0), (None, None)])
def test_how_long_buffers_are_kept(value: object, expected: float | None) -> None:
    with dask.config.set({"gpusched.memory.pool-keep": value}):
        assert configured_keep() == expected


@pytest.mark.parametrize("value", ["long", 0, -1, [1]])
def test_bad_times(value: object) -> None:
    with (
        dask.config.set({"gpusched.memory.pool-keep": value}),
        pytest.raises(ChoiceError, match=r"pool-keep cannot be .*write seconds"),
    ):
        configured_keep()


def test_a_bad_setting_is_told_by_the_program() -> None:
    x = da.from_array(np.ones(SMALLEST), chunks=-1)
    with (
        enable(),
        dask.config.set({"gpusched.memory.pool-limit": "lots"}),
        pytest.raises(ChoiceError, match="pool-limit cannot be 'lots'"),
    ):
        ((x + 1) * 2).compute(scheduler="sync")
