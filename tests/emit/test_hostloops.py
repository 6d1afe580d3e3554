"""The order in which kernels on the CPU read memory: blocks from some places, and rows at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.backends import primitives, python
from gpusched.emit import hostloops
from gpusched.emit.hostloops import block
from gpusched.emit.kernel import Kernel
from gpusched.emit.policy import BLOCK, JOINED_ROWS, LONG_RESULT, MANY_ROWS, PLACES, SHORT_ROW
from gpusched.inspection.machinecode import cpu_llvm
from gpusched.store import processors
from tests.record.recording import BACKENDS, check, record


def numbers(*shape: int, dtype: str = "int64") -> np.ndarray:
    """Return numbers that differ from each other as long as the dtype has enough."""
    return (np.arange(int(np.prod(shape))).reshape(shape) * 37 % 1009).astype(dtype)


def kernel_of(function: Callable[..., Any], *arrays: np.ndarray) -> Kernel:
    (launch,) = record(function, *arrays).launches
    return launch.kernel.kernel


@pytest.mark.parametrize("spread", [python.spread, primitives.spread])
@given(count=st.integers(0, 50), places=st.integers(1, 6))
def test_every_block_has_its_turn(
    spread: Callable[[int, int, int], int], count: int, places: int
) -> None:
    found = [spread(number, count, places) for number in range(count)]
    assert sorted(found) == list(range(count))


def test_blocks_come_from_some_places_in_turn() -> None:
    assert [python.spread(n, 9, 4) for n in range(9)] == [0, 2, 4, 6, 1, 3, 5, 7, 8]


@pytest.mark.parametrize(
    ("processor", "order", "distance"),
    [("znver4", [0, 1, 2, 3, 4], 0), ("sapphirerapids", [0, 2, 1, 3, 4], 7)],
)
def test_processors_that_read_ahead_themselves_are_left_to_read_in_sequence(
    processor: str, order: list[int], distance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", processor)
    monkeypatch.setattr(primitives, "_READS_AHEAD", processors.reads_ahead())
    assert [primitives.spread.py_func(n, 5, 2) for n in range(5)] == order
    assert primitives.ahead.py_func(7) == distance


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("blocks", [0, 1, PLACES - 1, PLACES, PLACES + 1, 2 * PLACES + 3])
def test_reductions_take_every_element_once(blocks: int, backend: str) -> None:
    for more in (1, BLOCK - 1, BLOCK):
        a = numbers(blocks * BLOCK + more)
        check(lambda a: ((a * 3).sum(), a.max(), a.min()), a, backend=backend)
        check(lambda a: (a * 3).sum(), a[::-1], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_any_length_and_distance_are_reduced(backend: str) -> None:
    for columns in (1, BLOCK - 1, BLOCK + 1, 5 * BLOCK + 3):
        wide = numbers(5, columns + 7)
        for rows in (wide[:, :columns], wide[::-2, 3 : columns + 3], wide[:, columns:0:-1]):
            check(lambda a, b: ((a - b) * 2).sum(axis=1), rows, rows[0].copy(), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", range(2 * JOINED_ROWS + 2))
def test_columns_of_any_length_are_reduced(rows: int, backend: str) -> None:
    a, b, c = numbers(rows, 5), numbers(rows, 1), numbers(5)
    check(lambda a, b, c: ((a - b) * c).sum(axis=0), a, b, c, backend=backend)
    if rows:
        check(lambda a: ((a + 1).sum(axis=0), a.max(axis=0)), a[::-1], backend=backend)
        check(lambda a: (a + 1).sum(axis=1), numbers(3, rows, 5)[:, ::-1], backend=backend)


@pytest.mark.parametrize("rows", [1, JOINED_ROWS, 3 * JOINED_ROWS + 5, 3 * MANY_ROWS + 5])
@pytest.mark.parametrize(
    ("function", "written", "ulp"),
    [
        pytest.param(lambda a: (a * 2).sum(axis=0), 8, 0, id="sum"),
        pytest.param(lambda a: (a.max(axis=0), a.min(axis=0)), 16, 0, id="extremes"),
        pytest.param(lambda a: np.argmax(a, axis=0), 16, 0, id="argmax"),
        pytest.param(lambda a: np.var(a, axis=0), 24, 64, id="variance"),
    ],
)
def test_rows_of_any_length_are_joined(
    function: Callable[..., Any], written: int, ulp: int, rows: int
) -> None:
    """Short ones one by one, others some at once."""
    longest = LONG_RESULT // written
    for columns in (SHORT_ROW // 8, SHORT_ROW // 8 + 1, longest, longest + 1):
        check(function, numbers(rows, columns, dtype="float64"), ulp=ulp)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [2, 3, JOINED_ROWS - 1, JOINED_ROWS, JOINED_ROWS + 1])
def test_rows_of_windows_that_overlap_are_joined_at_once(rows: int, backend: str) -> None:
    a, weights = numbers(40, 50, dtype="float64"), np.arange(1.0, rows + 1)[:, np.newaxis]
    windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, rows, axis=0), -1, 1)
    check(lambda a, b: (a * b).sum(axis=1), windows, weights, backend=backend)
    kernel = kernel_of(lambda a, b: (a * b).sum(axis=1), windows, weights)
    assert kernel.rows == (rows if rows < JOINED_ROWS else None)
    assert f"_row{min(rows, JOINED_ROWS) - 1} = shift" in hostloops.source(kernel)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_and_infinity_come_through_rows_that_are_joined(backend: str) -> None:
    a = numbers(JOINED_ROWS + 1, 4, dtype="float64")
    a[1, 0], a[2, 1], a[3, 2], a[4, 2] = np.nan, np.inf, np.inf, -np.inf
    check(lambda a: ((a * 2).sum(axis=0), (a * 2).max(axis=0)), a, backend=backend)


def test_light_kernels_ask_for_the_next_row() -> None:
    rows = numbers(1 << 10, 1 << 11, dtype="float32")[:, 1:]
    light = kernel_of(lambda a, b: (a - b) * b, rows, rows)
    assert light.streamed
    assert "llvm.prefetch" in cpu_llvm(light)
    assert block(light) == BLOCK


def test_heavy_kernels_compute_more_at_once_and_leave_asking_to_the_processor() -> None:
    heavy = kernel_of(lambda a: np.exp(a).sum(), numbers(1000, dtype="float32"))
    assert "llvm.prefetch" not in cpu_llvm(heavy)
    assert block(heavy) > BLOCK


def test_heavy_kernels_join_one_row_at_a_time() -> None:
    a = numbers(8, 6, dtype="float32")
    (light,) = record(lambda a: (a * a).sum(axis=0), a).launches
    (heavy,) = record(lambda a: np.exp(a).sum(axis=0), a).launches
    assert hostloops.source(light.kernel.kernel).count("= point(") == JOINED_ROWS + 1
    assert hostloops.source(heavy.kernel.kernel).count("= point(") == 1


@pytest.mark.parametrize(("terms", "rows"), [(1, 8), (5, 4), (10, 2), (40, 1)])
def test_long_kernels_join_fewer_rows_at_once(terms: int, rows: int) -> None:
    def function(a: Any) -> Any:
        for _ in range(terms):
            a = a * a + 1
        return a.sum(axis=0)

    a = numbers(2 * JOINED_ROWS + 3, 6, dtype="float64") / 100
    (launch,) = record(function, a).launches
    source = hostloops.source(launch.kernel.kernel)
    assert source.count("= point(") == (rows + 1 if rows > 1 else 1)
    check(function, a, backend="cpu")


@st.composite
def with_nan(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(["float32", "float64"]))
    values = draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf, -2.0, 0.5, 3.0]), min_size=1))
    times = draw(st.sampled_from([1, BLOCK]))
    return np.array(values, dtype).repeat(times)


@pytest.mark.parametrize("backend", BACKENDS)
@given(array=with_nan())
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.slow
def test_extremes_that_skip_nan_beside_sums(array: np.ndarray, backend: str) -> None:
    def both(a: Any) -> Any:
        return np.fmin.reduce(a), np.isnan(a).sum(), np.fmax.reduce(a), (a + 1).min()

    found = check(both, array, backend=backend)
    # A single truth value is counted by itself.
    assert len(found.launches) == (2 if array.size == 1 else 1)
    check(lambda a: (np.fmin.reduce(a, axis=1), np.fmax.reduce(a, axis=1), np.isnan(a).sum(axis=1)),
          np.array([array, array[::-1]]), backend=backend)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_that_skip_nan_take_several_elements_at_once_beside_sums(dtype: str) -> None:
    a = numbers(10 * BLOCK, dtype=dtype)
    kernel = kernel_of(lambda a: (np.fmin.reduce(a), np.fmax.reduce(a), a.sum()), a)
    several = r"<\d+ x (?:float|double)> @llvm\."
    assert re.search(several + "minimum", cpu_llvm(kernel))
    assert re.search(several + "maximum", cpu_llvm(kernel))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_take_several_elements_at_once_where_errors_are_looked_for(dtype: str) -> None:
    """Flags show errors, or what says that there was one is joined in the same loop."""
    a = numbers(10 * BLOCK, dtype=dtype)
    for program, tested in (
        (lambda a: (a * a + 1).max(), False),
        (lambda a: np.fmax.reduce(a * a + 1), False),
        (lambda a: np.log(a * a + 1).max(), True),
        (lambda a: np.fmax.reduce(np.log(a * a + 1)), True),
    ):
        kernel = kernel_of(program, a)
        assert kernel.flags
        assert bool(kernel.tested) is tested
        vectors = r"<\d+ x (?:float|double)>"
        found = rf"{vectors} @llvm\.max(?:imum|num)|fcmp [\w ]*ogt {vectors}"
        assert re.search(found, cpu_llvm(kernel))


@pytest.mark.parametrize("function", [np.log, np.sin, lambda x: np.where(x > 1, x * 2 + 1, 0)])
def test_several_elements_are_tested_at_once(function: Callable[..., Any]) -> None:
    """Flags and tests that say the same must not keep LLVM from it (`Nest.errors`)."""
    kernel = kernel_of(lambda a: function(a) / a, numbers(10 * BLOCK, dtype="float32") + 1)
    assert kernel.flags == 13
    assert kernel.tested == ("wrong",)
    assert re.search(r"fdiv [\w ]*<\d+ x float>", cpu_llvm(kernel))
