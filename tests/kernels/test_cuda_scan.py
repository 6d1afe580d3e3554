"""Users' scans for NVIDIA GPUs: compiled to machine code, and run without a GPU."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.backends.cuda import scan as scans
from gpusched.backends.cuda.geometry import Geometry
from gpusched.backends.cuda.scan import CudaScan, ScanCode, split
from gpusched.backends.python import Window
from gpusched.emit import operations
from gpusched.emit.skeleton import scan as skeleton

pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")

from gpusched.backends.cuda import simulator
from tests.backends.cuda.runtimes import HostRuntime


@gpusched.kernel.scan(identity=0)
def total(a, b):
    return a + b


@gpusched.kernel.scan(identity=-math.inf)
def largest(a, b):
    return a if a >= b or a != a else b


@gpusched.kernel.scan(identity=False)
def either(a, b):
    return a or b


@gpusched.kernel.scan(identity=0)
def last_that_counts(a, b):
    """Joins in order only: associative, and not commutative."""
    return b if b != 0 else a


class Simulated(HostRuntime):
    """All threads of each block, in plain Python."""

    def __init__(self, backwards: bool = False) -> None:
        super().__init__()
        self.backwards = backwards

    def compile(self, code: Any) -> Any:
        found = simulator.namespace()
        function = operations.named(code.operation).function
        assert function is not None
        found[code.operation] = function.for_python()
        exec(compile(code.source, f"<simulated {code.name}>", "exec"), found)
        return found["kernel"]

    def launch(self, code: Any, geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        small = dataclasses.replace(geometry, block=(min(8, geometry.block[0]), 1, 1))
        self.launches.append((code, small))
        windows = [Window(array) for array in arrays]
        with np.errstate(all="ignore"):
            simulator.run(code, small, (*windows, *numbers), self.backwards)


class Compiled(HostRuntime):
    """numba-cuda's own code on this processor, in blocks of one thread."""

    def compile(self, code: ScanCode) -> Any:
        from tests.backends.cuda.ir_on_cpu import OnCpu

        return OnCpu(code.build((9, 0)))

    def launch(self, code: Any, geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        alone = dataclasses.replace(geometry, block=(1, 1, 1))
        self.launches.append((code, alone))
        kinds = ["pointer"] * len(arrays) + ["int64"] * len(numbers)
        code(alone, [*addresses, *numbers], kinds)


def run(kernel: Any, values: np.ndarray, shape: tuple[int, int, int], runtime: Any) -> np.ndarray:
    typed = kernel.frozen().typed(values.dtype)
    values = values.astype(typed.results[0])
    out = runtime.empty(values.size, values.dtype.name)
    scan = CudaScan(typed.operation, values.dtype.name, runtime)
    assert scan(values.reshape(-1), out, shape) == len(runtime.launches)
    return out.reshape(shape)


def expected(kernel: Any, values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    found = kernel(values.reshape(shape), axis=1)
    return np.asarray(found)


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows divided as those of many values are: a block has few threads here."""
    monkeypatch.setattr(skeleton, "TILE", 8 * skeleton.TILE_VALUES)
    monkeypatch.setattr(scans, "FEW_TILES", 2)
    monkeypatch.setattr(scans, "SPLIT_BLOCKS", 6)


KERNELS = {"total": total, "largest": largest, "last": last_that_counts}
SHAPES = [(1, 1, 1), (1, 31, 1), (1, 33, 1), (3, 100, 1), (1, 700, 1), (2, 5, 3), (1, 9, 40)]


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_simulated(name: str, shape: tuple[int, int, int], backwards: bool) -> None:
    values = np.random.default_rng(0).integers(-3, 4, math.prod(shape)).astype("f8")
    found = run(KERNELS[name], values, shape, Simulated(backwards))
    np.testing.assert_array_equal(found, expected(KERNELS[name], values, shape))


def test_truth_values() -> None:
    values = np.zeros(200, bool)
    values[[130, 150]] = True
    for shape in ((1, 200, 1), (1, 100, 2)):
        found = run(either, values, shape, Simulated())
        assert found.dtype == np.bool_
        np.testing.assert_array_equal(found, expected(either, values, shape))


@given(st.integers(1, 3), st.integers(1, 400), st.sampled_from("ifd"))
def test_any_length(before: int, length: int, dtype: str) -> None:
    shape = before, length, 1
    values = np.random.default_rng(length).integers(-9, 9, before * length).astype(dtype)
    runtime = Simulated()
    found = run(total, values, shape, runtime)
    np.testing.assert_array_equal(found, expected(total, values, shape))
    parts, _ = split(before, length)
    assert len(runtime.launches) == (3 if parts > 1 else 1)


@given(st.integers(1, 10_000), st.integers(1, 10**9))
def test_parts_cover_a_row_and_none_is_empty(rows: int, length: int) -> None:
    parts, tiles = split(rows, length)
    values = tiles * skeleton.TILE
    assert (parts - 1) * values < length <= parts * values


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_the_compilers_own_code_run_on_the_cpu(
    shape: tuple[int, int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    monkeypatch.setattr(skeleton, "TILE", skeleton.TILE_VALUES)
    values = np.random.default_rng(0).integers(0, 2, math.prod(shape)).astype(dtype)
    kernel = either if dtype == "bool" else total
    found = run(kernel, values, shape, Compiled())
    np.testing.assert_array_equal(found, expected(kernel, values, shape))


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)], ids=str)
@pytest.mark.parametrize("inner", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_machine_code(dtype: str, inner: bool, cc: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    typed = largest.frozen().typed(np.dtype(dtype))
    compiled = ScanCode(typed.operation, typed.results[0].name, inner).build(cc)
    assert compiled.cubin[:4] == b"\x7fELF"
    sass = compiled.sass()
    assert ("BAR.SYNC" in sass) == inner
    assert "STL" not in sass, "registers are spilled"
    if dtype == "float32":
        assert "F64" not in sass, "float32 goes through float64"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 100_003), (3_000_000,), (300, 200, 7)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_on_a_gpu(name: str, shape: tuple[int, ...]) -> None:
    import cupy

    values = np.random.default_rng(0).integers(-3, 4, shape)
    for axis in range(len(shape)):
        found = KERNELS[name](cupy.asarray(values), axis=axis)
        np.testing.assert_array_equal(found.get(), KERNELS[name](values, axis=axis))


def test_joined_in_order() -> None:
    values = np.array([1, 0, 2, 0, 0, 3] * 40)
    found = run(last_that_counts, values, (1, 240, 1), Simulated())
    last = list(itertools.accumulate(values, last_that_counts.python))
    np.testing.assert_array_equal(found[0, :, 0], last)
