"""Launches cover every element, stay within the hardware's limits, and depend on nothing else."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from gpusched.backends.cuda.compiler import THREADS
from gpusched.backends.cuda.geometry import HIGHEST, Geometry, geometry
from gpusched.emit import generate
from gpusched.emit.kernel import Access, Input, Kernel, Output
from gpusched.emit.skeleton.source_lines import unroll, width

DTYPES = st.sampled_from(["bool", "int16", "float32", "float64"])
SIZES = st.integers(1, 2**40)


def kernel(loops: tuple[str, ...], dtype: str = "float32") -> Kernel:
    """Return a copy, or a sum over the loops that reduce."""
    outer = (Access.STRIDED,) * (len(loops) - 1)
    reduces = "reduce" in loops
    steps = (*outer, Access.UNIT)
    written = tuple(
        Access.BROADCAST if loop == "reduce" else step
        for loop, step in zip(loops, steps, strict=True)
    )
    output = Output(0, dtype, written, "maximum" if reduces else None, dtype)
    return Kernel((Input(dtype, steps),), (), (), (output,), loops)


def launch(loops: tuple[str, ...], sizes: tuple[int, ...], dtype: str, aligned: bool) -> Geometry:
    made = kernel(loops, dtype)
    strides = [math.prod(sizes[level + 1 :]) for _, level, _ in generate.stride_names(made)]
    found = geometry(made, (*sizes, *strides), aligned)
    assert 1 <= found.grid[0] < 2**31
    assert all(1 <= n <= HIGHEST for n in found.grid[1:])
    assert math.prod(found.block) <= THREADS
    assert all(n & (n - 1) == 0 for n in found.block), "trees join halves"
    assert aligned or not found.vectors or width(made) == 1
    return found


@given(st.integers(1, 2**38), DTYPES, st.booleans())
@example(2048, "float32", True)
def test_flat_covers_every_element_once(size: int, dtype: str, aligned: bool) -> None:
    made = kernel(("map",), dtype)
    found = launch(("map",), (size,), dtype, aligned)
    tile = THREADS * width(made) * unroll(made)
    assert found.vectors * tile <= size
    assert found.grid[0] >= found.vectors
    assert found.vectors * tile + found.grid[0] * THREADS >= size


@given(SIZES, st.integers(1, 2**20), st.integers(1, 2**38), DTYPES, st.booleans())
def test_nest_covers_every_row_and_column(
    outer: int, rows: int, columns: int, dtype: str, aligned: bool
) -> None:
    found = launch(("map", "map", "map"), (outer, rows, columns), dtype, aligned)
    lanes = width(kernel(("map",), dtype))
    assert found.grid[0] * found.block[0] >= (found.vectors or columns)
    assert found.vectors in (0, columns // lanes)
    assert not found.vectors or columns % lanes == 0
    assert found.grid[1] * found.block[1] * found.each >= rows


@given(st.integers(1, 2**30), st.integers(1, 2**33), DTYPES, st.booleans())
def test_reduction_along_rows(elements: int, length: int, dtype: str, aligned: bool) -> None:
    found = launch(("map", "reduce"), (elements, length), dtype, aligned)
    assert found.splits == found.grid[0] * found.grid[2] <= 1024


@given(st.integers(1, 2**33), st.integers(1, 2**33), DTYPES)
def test_reduction_of_rows(rows: int, columns: int, dtype: str) -> None:
    found = launch(("reduce", "map"), (rows, columns), dtype, True)
    assert found.splits == found.grid[1] <= 1024
    assert found.grid[0] * found.block[0] >= columns


def test_small_reductions_take_one_launch() -> None:
    assert launch(("reduce",), (5000,), "float32", True).splits == 1
    assert launch(("reduce",), (4_000_000,), "float32", True).splits > 132
