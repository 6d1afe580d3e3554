"""Kernels that wait for memory go block by block: which do, and that they write nothing beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.emit.floatingpoint import DIVIDE, IS_X86, take
from gpusched.emit.policy import BLOCK, FROM_MEMORY
from gpusched.plan import schedule
from tests.record.recording import BACKENDS, check, record
from tests.tiers import every

pytestmark = pytest.mark.skipif(not IS_X86, reason="blocks on x86-64 only")

LARGE = FROM_MEMORY // 4


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype="int64").reshape(shape).astype(dtype)


def blocks(function: Callable[..., Any], *arrays: np.ndarray) -> list[bool]:
    """Return which kernels of a function go by blocks, after checking what it computes."""
    return [launch.kernel.kernel.blocks for launch in check(function, *arrays, ulp=4).launches]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small results be computed so, too."""
    monkeypatch.setattr(schedule, "FROM_MEMORY", 1)


def test_large_results_are_computed_by_blocks() -> None:
    assert blocks(lambda a, b: a * 2 + b, numbers(LARGE), numbers(LARGE)) == [True]
    assert blocks(lambda a: a * 2 + 1, numbers(LARGE // BLOCK, BLOCK)) == [True]


def test_rows_that_something_is_broadcast_along_are() -> None:
    rows, columns = LARGE // 1024, 1024
    arrays = numbers(rows, columns), numbers(columns), numbers(rows, 1)
    assert blocks(lambda a, b, c: (a - b) * 2 + c, *arrays) == [True]


def test_results_in_another_order_are() -> None:
    assert blocks(lambda a: a.T * 2 + 1, numbers(LARGE // 1024, 1024)) == [True]


def test_all_that_a_kernel_writes_counts() -> None:
    half = numbers(LARGE // 2)
    assert blocks(lambda a: (a * 2 + 1, a * 3 - 1), half) == [True]
    assert blocks(lambda a: a * 2 + 1, half) == [False]


def test_what_stays_in_the_cache_is_reduced_or_takes_long_is_not() -> None:
    assert blocks(lambda a: a * 2 + 1, numbers(LARGE - 1)) == [False]
    assert blocks(lambda a: (a * 2 + 1).max(), numbers(LARGE)) == [False]
    assert blocks(lambda a: (a * 2 + 1).max(axis=0), numbers(2, LARGE)) == [False]
    assert blocks(lambda a: np.exp(a * 1e-9), numbers(LARGE)) == [False]


def test_short_rows_are_not() -> None:
    wide, few = numbers(LARGE // BLOCK * 2, BLOCK), numbers(BLOCK // 2)
    assert blocks(lambda a, b: (a[:, ::2] + 1) * b, wide, few) == [False]


def test_kernels_for_other_machines_have_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "IS_X86", False)
    (launch,) = record(lambda a: a * 2 + 1, numbers(LARGE)).launches
    assert not launch.kernel.kernel.blocks


def test_a_kernel_by_blocks_is_another_kernel() -> None:
    """Its source differs, so its name must."""
    (large,) = record(lambda a: a * 2 + 1, numbers(LARGE)).launches
    (little,) = record(lambda a: a * 2 + 1, numbers(4096)).launches
    assert large.name != little.name
    assert large.kernel.kernel.computation == little.kernel.kernel.computation
    assert replace(large.kernel.kernel, blocks=False) == little.kernel.kernel


LENGTHS = st.one_of(
    st.integers(1, 80), st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, 9 * BLOCK + 5])
)
DTYPES = ["bool", "int8", "uint16", "float16", "int32", "float32", "int64", "float64"]


def compute(a: Any, b: Any) -> tuple[Any, Any]:
    return a > b, np.where(a > b, a, b)


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("dtype", every(3, DTYPES))
def test_writes_what_it_shall_wherever_that_lies(dtype: str, backend: str, small: None) -> None:
    """Every length and every place in a line of the cache, and not one byte beside them."""
    both = record(compute, numbers(BLOCK, dtype=dtype), numbers(BLOCK, dtype=dtype)[::-1].copy())
    (launch,) = both.launches
    kernel = launch.kernel.kernel
    assert kernel.blocks
    call = BACKENDS[backend](kernel).call
    size = np.dtype(dtype).itemsize

    @given(length=LENGTHS, first=st.integers(0, 64), second=st.integers(0, 64 // size))
    def writes(length: int, first: int, second: int) -> None:
        a, b = numbers(length, dtype=dtype), numbers(length, dtype=dtype)[::-1].copy()
        memory = np.full(length * (size + 1) + 400 + 64 * size, 0xA5, "u1")
        start = -memory.ctypes.data % 64 + 64
        mask = memory[start + first :][:length].view("bool")
        place = -(-(start + first + length + 64) // 64) * 64 - memory.ctypes.data % size
        place += -(memory.ctypes.data + place) % 64 + second * size
        values = memory[place : place + length * size].view(dtype)
        expected = memory.copy()
        expected[start + first :][:length] = (a > b).view("u1")
        expected[place : place + length * size] = np.where(a > b, a, b).view("u1")
        call(a, b, mask, values, length)
        np.testing.assert_array_equal(memory, expected)

    writes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_any_length_and_place(small: None, backend: str) -> None:
    for columns in (BLOCK, BLOCK + 1, BLOCK + 31, 4 * BLOCK + 1, 9 * BLOCK + 31):
        a, b = numbers(7, columns), numbers(columns)
        found = check(lambda a, b: (a - b) * 2, a, b, backend=backend)
        assert [launch.kernel.kernel.blocks for launch in found.launches] == [True]


def test_errors_are_told_all_the_same() -> None:
    a = np.zeros(LARGE, "float32")
    take()
    record(lambda a: (a + 1) / a, a)
    assert take() == DIVIDE
