"""Device memory pools; CuPy and RMM are played by small modules that count what they lend."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpusched.workers.pool import KINDS, HostPool, Pool, install, read_request

TOTAL = 8 << 30
MIB = 1 << 20


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size} bytes")


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class Driver:
    """The device's memory, as the CUDA runtime hands it out."""

    CUDARuntimeError = CUDARuntimeError

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        self.others = 0
        """Bytes that other processes have."""
        self.fault = 0
        """Status of the error that the next call to `malloc` ends with."""
        self._next = 512

    def memGetInfo(self) -> tuple[int, int]:
        return TOTAL - self.others - sum(self.taken.values()), TOTAL

    def runtimeGetVersion(self) -> int:
        return 13020

    def malloc(self, size: int) -> int:
        if self.fault or size > self.memGetInfo()[0]:
            raise CUDARuntimeError(self.fault or 2)
        pointer, self._next = self._next, self._next + size
        self.taken[pointer] = size
        return pointer

    def free(self, pointer: int) -> None:
        del self.taken[pointer]


class Memory:
    """What an array holds on to; its end gives the memory back."""

    def __init__(self, size: int, pointer: int, end: Callable[[], None]) -> None:
        self.size, self.pointer, self._end = size, pointer, end

    def __del__(self) -> None:
        self._end()


class MemoryPool:
    """As CuPy's: keeps what is freed; refuses what exceeds the limit without freeing anything."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.free: list[int] = []
        self.ceiling = 0

    def malloc(self, size: int) -> Memory:
        fitting = [pointer for pointer in self.free if self.driver.taken[pointer] == size]
        if fitting:
            self.free.remove(fitting[0])
            return Memory(size, fitting[0], lambda: self.free.append(fitting[0]))
        if self.ceiling and self.total_bytes() + size > self.ceiling:
            raise OutOfMemoryError(size, self.total_bytes(), self.ceiling)
        pointer = self.driver.malloc(size)
        return Memory(size, pointer, lambda: self.free.append(pointer))

    def total_bytes(self) -> int:
        return sum(self.driver.taken.values())

    def used_bytes(self) -> int:
        return self.total_bytes() - sum(self.driver.taken[pointer] for pointer in self.free)

    def free_all_blocks(self) -> None:
        while self.free:
            self.driver.free(self.free.pop())

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.ceiling = size or 0


class PythonFunctionAllocator:
    def __init__(self, allocate: Callable[..., int], free: Callable[..., None]) -> None:
        self._allocate, self._free = allocate, free

    def malloc(self, size: int) -> Memory:
        if not size:
            return Memory(0, 0, lambda: None)
        pointer = self._allocate(size, 0)
        return Memory(size, pointer, lambda: self._free(pointer, 0))


class Machine:
    """A GPU with CuPy and RMM on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = Driver()
        self.allocator: Any = None
        self.rmm_initial = -1
        self.default_pool = MemoryPool(self.driver)
        self.async_pool = MemoryPool(self.driver)
        monkeypatch.setitem(sys.modules, "cupy", self._cupy())
        for name, module in self._rmm().items():
            monkeypatch.setitem(sys.modules, name, module)

    def allocate(self, size: int) -> Memory:
        memory: Memory = self.allocator(size)
        return memory

    def _set_allocator(self, allocator: Any) -> None:
        self.allocator = allocator

    def _cupy(self) -> ModuleType:
        cupy = ModuleType("cupy")
        cupy.get_default_memory_pool = lambda: self.default_pool
        cupy.cuda = SimpleNamespace(
            MemoryAsyncPool=lambda: self.async_pool,
            PythonFunctionAllocator=PythonFunctionAllocator,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=self.driver,
            set_allocator=self._set_allocator,
        )
        return cupy

    def _rmm(self) -> dict[str, ModuleType]:
        names = ("rmm", "rmm.allocators", "rmm.allocators.cupy")
        rmm, allocators, for_cupy = modules = [ModuleType(name) for name in names]
        rmm.allocators, allocators.cupy = allocators, for_cupy
        current: list[Any] = []

        def make_pool(upstream: object, initial_pool_size: int) -> Any:
            self.rmm_initial = initial_pool_size
            used = {"bytes": 0}

            def allocate(size: int) -> Memory:
                used["bytes"] += size
                return Memory(size, 1, lambda: used.update(bytes=used["bytes"] - size))

            size = initial_pool_size
            return SimpleNamespace(pool_size=lambda: max(size, used["bytes"]), used=used,
                                   allocate=allocate)  # fmt: skip

        class Statistics:
            def __init__(self, upstream: Any) -> None:
                self.upstream = upstream

            @property
            def allocation_counts(self) -> Any:
                return SimpleNamespace(current_bytes=self.upstream.used["bytes"])

        for_cupy.rmm_cupy_allocator = lambda size: current[-1].upstream.allocate(size)
        rmm.mr = SimpleNamespace(
            CudaMemoryResource=lambda: None,
            PoolMemoryResource=make_pool,
            StatisticsResourceAdaptor=Statistics,
            set_current_device_resource=current.append,
        )
        return dict(zip(names, modules, strict=True))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_pool_counts_what_it_lends(machine: Machine, kind: str) -> None:
    pool = install(kind)
    assert (pool.kind, pool.used(), pool.held()) == (kind, 0, 0)
    first, second = machine.allocate(3 * MIB), machine.allocate(5 * MIB)
    assert pool.used() == 8 * MIB
    assert pool.held() >= pool.used()
    del first
    assert pool.used() == second.size


@pytest.mark.parametrize("kind", ["cupy", "async"])
def test_free_blocks_are_held_until_they_are_given_back(machine: Machine, kind: str) -> None:
    pool = install(kind)
    kept, freed = machine.allocate(3 * MIB), machine.allocate(5 * MIB)
    del freed
    assert (pool.held(), pool.used()) == (8 * MIB, kept.size)
    assert pool.free_unused() == 5 * MIB
    assert pool.held() == kept.size
    assert pool.free_unused() == 0


def test_without_a_pool_nothing_is_held(machine: Machine) -> None:
    pool = install("none")
    array = machine.allocate(MIB)
    empty = machine.allocate(0)
    assert (pool.held(), pool.used(), pool.free_unused()) == (MIB, MIB, 0)
    del array, empty
    assert (pool.held(), machine.driver.taken) == (0, {})


@pytest.mark.parametrize("kind", ["none", "cupy"])
def test_limit_bounds_what_is_taken(machine: Machine, kind: str) -> None:
    pool = install(kind)
    assert pool.limit(4 * MIB)
    array = machine.allocate(3 * MIB)
    with pytest.raises(OutOfMemoryError):
        machine.allocate(2 * MIB)
    assert pool.used() == array.size
    assert pool.limit(0)
    assert machine.allocate(2 * MIB).size == 2 * MIB


@pytest.mark.parametrize("kind", ["async", "rmm"])
def test_pool_that_cannot_be_bounded_says_so(machine: Machine, kind: str) -> None:
    assert not install(kind).limit(MIB)


def test_limit_of_cupy_counts_no_free_blocks(machine: Machine) -> None:
    pool = install("cupy", 4 * MIB)
    machine.allocate(3 * MIB)
    assert pool.held() == 3 * MIB
    array = machine.allocate(2 * MIB)
    assert (pool.held(), pool.used()) == (2 * MIB, array.size)


def test_driver_without_memory_is_an_error_of_memory(machine: Machine) -> None:
    pool = install("none")
    machine.driver.others = TOTAL - MIB
    with pytest.raises(OutOfMemoryError) as caught:
        machine.allocate(2 * MIB)
    assert isinstance(caught.value.__cause__, CUDARuntimeError)
    machine.driver.fault = 700
    with pytest.raises(CUDARuntimeError, match="700"):
        machine.allocate(1)
    assert pool.used() == 0


@pytest.mark.parametrize(("size", "kept"), [("2 GiB", 2 << 30), (None, sys.maxsize)])
def test_size_of_async_is_what_it_keeps(machine: Machine, size: str | None, kept: int) -> None:
    install("async", size)
    assert machine.async_pool.ceiling == kept


@pytest.mark.parametrize(("size", "initial"), [(None, 0), (MIB + 255, MIB), ("1 GiB", 1 << 30)])
def test_size_of_rmm_is_taken_at_once(
    machine: Machine, size: int | str | None, initial: int
) -> None:
    pool = install("rmm", size)
    assert machine.rmm_initial == pool.held() == initial
    assert pool.free_unused() == 0


@pytest.mark.parametrize("kind", ["", "CUPY", "cupy ", "managed"])
def test_unknown_kind(machine: Machine, kind: str) -> None:
    with pytest.raises(ValueError, match=r"^--pool .* is none of 'none', 'cupy', 'async', 'rmm'$"):
        install(kind)
    assert machine.allocator is None


@pytest.mark.parametrize("size", ["", "x", "GiB", "1e400", "8 GiBB", True, float("nan"), b"8"])
def test_size_that_cannot_be_read(machine: Machine, size: Any) -> None:
    with pytest.raises(ValueError, match=r"^--pool-size cannot be .*: write a size"):
        install("cupy", size)
    assert machine.allocator is None


@pytest.mark.parametrize("size", [0, -1, "-8 GiB", "8", "1000 kB"])
def test_size_that_is_too_small(machine: Machine, size: int | str) -> None:
    with pytest.raises(ValueError, match=r"^--pool-size cannot be .*, 1\.00 MiB or more"):
        install("rmm", size)


def test_size_without_a_pool(machine: Machine) -> None:
    with pytest.raises(ValueError, match="8 GiB has no meaning with --pool none"):
        install("none", "8 GiB")


@pytest.mark.parametrize("kind", ["cupy", "async", "rmm"])
def test_size_larger_than_the_device(machine: Machine, kind: str) -> None:
    install(kind, TOTAL)
    with pytest.raises(ValueError, match=r"9\.00 GiB is more than the 8\.00 GiB that the device"):
        install(kind, "9 GiB")


def test_rmm_takes_only_what_is_free(machine: Machine) -> None:
    machine.driver.others = 3 << 30
    install("cupy", "6 GiB")
    with pytest.raises(ValueError, match=r"5\.00 GiB of the device's 8\.00 GiB are free.*nvidia"):
        install("rmm", "6 GiB")


@pytest.mark.parametrize("kind", KINDS)
def test_missing_cupy(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=rf"^--pool {kind} needs CuPy .*pip install .*\[cuda13\]"):
        install(kind)


@pytest.mark.parametrize("name", ["rmm", "rmm.allocators.cupy"])
def test_missing_rmm(machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"^--pool rmm needs RMM .*pip install rmm-cu13$"):
        install("rmm")
    assert machine.allocator is None


def test_request_is_read_without_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert read_request("rmm", "1.5 GiB") == 3 << 29
    assert read_request("none") is None


def test_chunk_buffers_of_the_host() -> None:
    from gpusched.backends.buffer_pool import pool as buffers

    buffers.clear()
    pool: Pool = HostPool()
    array = buffers.empty((MIB,), np.dtype("u1"))
    assert (pool.held(), pool.used()) == (0, 0)
    del array
    assert pool.held() == MIB
    assert pool.free_unused() == MIB
    assert (pool.held(), pool.free_unused(), pool.limit(1)) == (0, 0, False)
