"""Results too large for the caches are written past them: which, whole, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.emit.floatingpoint import DIVIDE, IS_X86, take
from gpusched.emit.policy import BLOCK, STREAMED
from gpusched.inspection.machinecode import cpu_llvm
from gpusched.plan import kernelbuilder
from gpusched.record.reductions import FEW
from tests.record.recording import BACKENDS, check, record
from tests.tiers import every

pytestmark = pytest.mark.skipif(not IS_X86, reason="streams on x86-64 only")

LARGE = STREAMED // 4


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype="int64").reshape(shape).astype(dtype)


def streamed(function: Callable[..., Any], *arrays: np.ndarray) -> list[bool]:
    """Return which kernels of a function stream, after checking what it computes."""
    return [launch.kernel.kernel.streamed for launch in check(function, *arrays).launches]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small results be streamed, too."""
    monkeypatch.setattr(kernelbuilder, "STREAMED", 1)


def test_large_results_are_streamed() -> None:
    assert streamed(lambda a, b: a * 2 + b, numbers(LARGE), numbers(LARGE)) == [True]
    assert streamed(lambda a: a * 2 + 1, numbers(LARGE // BLOCK, BLOCK)) == [True]


def test_rows_that_something_is_broadcast_along_are_streamed() -> None:
    rows, columns = LARGE // 1024, 1024
    arrays = numbers(rows, columns), numbers(columns), numbers(rows, 1)
    assert streamed(lambda a, b, c: (a - b) * 2 + c, *arrays) == [True]


def test_results_in_another_order_are_streamed() -> None:
    assert streamed(lambda a: a.T * 2 + 1, numbers(LARGE // 1024, 1024)) == [True]


def test_all_that_a_kernel_writes_counts() -> None:
    half = numbers(LARGE // 2)
    assert streamed(lambda a: (a * 2 + 1, a * 3 - 1), half) == [True]
    assert streamed(lambda a: a * 2 + 1, half) == [False]


def test_what_stays_in_the_cache_or_is_reduced_is_not() -> None:
    assert streamed(lambda a: a * 2 + 1, numbers(LARGE - 1)) == [False]
    assert streamed(lambda a: (a * 2 + 1).max(), numbers(LARGE)) == [False]
    rows = np.broadcast_to(numbers(LARGE), (FEW + 1, LARGE))
    assert streamed(lambda a: (a * 2 + 1).max(axis=0), rows) == [False]


def test_short_rows_are_not() -> None:
    wide, few = numbers(LARGE // BLOCK * 2, BLOCK), numbers(BLOCK // 2)
    assert streamed(lambda a, b: (a[:, ::2] + 1) * b, wide, few) == [False]


def test_kernels_for_other_machines_have_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelbuilder, "IS_X86", False)
    (launch,) = record(lambda a: a * 2 + 1, numbers(LARGE)).launches
    assert not launch.kernel.kernel.streamed


def test_stores_are_whole_lines_past_the_cache() -> None:
    (launch,) = record(lambda a: a * 2 + 1, numbers(LARGE)).launches
    lines = cpu_llvm(launch.kernel.kernel).splitlines()
    stores = [line for line in lines if "!nontemporal" in line and "store" in line]
    assert stores
    assert all("<16 x i32>" in store and "align 64" in store for store in stores)
    assert any("fence seq_cst" in line for line in lines)


def test_a_streamed_kernel_is_another_kernel() -> None:
    """Its source differs, so its name must."""
    (large,) = record(lambda a: a * 2 + 1, numbers(LARGE)).launches
    (little,) = record(lambda a: a * 2 + 1, numbers(4096)).launches
    assert large.name != little.name
    assert large.kernel.kernel.computation == little.kernel.kernel.computation
    assert replace(large.kernel.kernel, streamed=False) == little.kernel.kernel


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
    assert kernel.streamed
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
        assert [launch.kernel.kernel.streamed for launch in found.launches] == [True]


def test_errors_are_told_all_the_same() -> None:
    a = np.zeros(LARGE, "float32")
    take()
    record(lambda a: (a + 1) / a, a)
    assert take() == DIVIDE
