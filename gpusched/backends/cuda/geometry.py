"""How many blocks and threads a launch takes: a function of sizes, strides and alignment only.

It does not ask how large the GPU is, so that a sum comes out the same on any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpusched.emit import generate
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.policy import LEAST_LOADS, ROW_BLOCKS, SPLIT_BLOCKS
from gpusched.emit.skeleton.reduction import levels, rows_at_once
from gpusched.emit.skeleton.source_lines import threads, unroll, width

Three = tuple[int, int, int]

WARP = 32
"""Threads that access memory together."""
HIGHEST = 65535
"""Blocks along the grid's y and z; along x there may be 2**31 - 1."""


@dataclass(frozen=True)
class Geometry:
    """One launch."""

    grid: Three
    """Blocks along x, y and z."""
    block: Three
    """Threads along x, y and z; powers of two."""
    vectors: int
    """Vectors (tiles, in a flat loop) of a row; 0 where arrays are not aligned."""
    each: int = 1
    """Rows of one thread, in a nest."""
    splits: int = 1
    """Partial results per element of the output; 1 where the kernel writes the results."""

    @cached_property
    def config(self) -> Any:
        """The same as cuda-core takes it."""
        from cuda.core import LaunchConfig

        return LaunchConfig(grid=self.grid, block=self.block)


def geometry(kernel: Kernel, numbers: tuple[int, ...], aligned: bool) -> Geometry:
    """Return the launch for some loop sizes and strides.

    Parameters
    ----------
    kernel
        The kernel; its loops have at least one iteration each.
    numbers
        Sizes of the loops, then the strides in elements that `generate.stride_names` lists.
    aligned
        Whether every array's address is a multiple of 16.

    Examples
    --------
    >>> from gpusched.emit.kernel import Input, Output
    >>> one = (Access.UNIT,)
    >>> copy = Kernel((Input("float32", one),), (), (), (Output(0, "float32", one),), ("map",))
    >>> geometry(copy, (8192,), aligned=True)
    Geometry(grid=(2, 1, 1), block=(256, 1, 1), vectors=2, each=1, splits=1)
    """
    sizes, strides = numbers[: len(kernel.loops)], numbers[len(kernel.loops) :]
    if kernel.segmented or kernel.scanned:
        return _lanes(kernel, sizes)
    if "reduce" in kernel.loops:
        if kernel.loops[-1] == "reduce":
            return _reduce_inner(kernel, sizes, strides, aligned)
        return _reduce_outer(kernel, sizes)
    if len(kernel.loops) == 1:
        return _flat(kernel, sizes[0], aligned)
    return _nest(kernel, sizes, strides, aligned)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _between(low: int, number: int, high: int) -> int:
    return max(low, min(number, high))


def _flat(kernel: Kernel, size: int, aligned: bool) -> Geometry:
    block = threads(kernel)
    tile = block * width(kernel) * unroll(kernel)
    tiles = size // tile if aligned or width(kernel) == 1 else 0
    rest = _divide_up(size - tiles * tile, block)
    return Geometry((max(tiles, rest, 1), 1, 1), (block, 1, 1), tiles)


def _rows_aligned(kernel: Kernel, strides: tuple[int, ...], aligned: bool) -> bool:
    """Return whether each row starts at a multiple of a vector in every array read in vectors."""
    lanes = width(kernel)
    steps = zip(generate.stride_names(kernel), strides, strict=True)
    moving = [s for (k, _, _), s in steps if kernel.operands[k].access[-1] is Access.UNIT]
    return lanes > 1 and aligned and all(stride % lanes == 0 for stride in moving)


def _nest(
    kernel: Kernel, sizes: tuple[int, ...], strides: tuple[int, ...], aligned: bool
) -> Geometry:
    *outer, rows, columns = sizes
    lanes = width(kernel)
    whole = columns % lanes == 0 and _rows_aligned(kernel, strides, aligned)
    vectors = columns // lanes if whole else 0
    items = vectors or columns
    x = min(threads(kernel), power_of_two(items))
    y = min(threads(kernel) // x, power_of_two(rows))
    across, depth = _divide_up(items, x), min(HIGHEST, math.prod(outer))
    down = _between(1, ROW_BLOCKS // (across * depth), _divide_up(rows, y))
    # Threads of one warp that have different rows must have neighbouring ones.
    down = min(HIGHEST, down if x >= WARP else _divide_up(rows, y))
    each = _divide_up(rows, down * y)
    return Geometry((across, _divide_up(rows, each * y), depth), (x, y, 1), vectors, each)


def _reduce_inner(
    kernel: Kernel, sizes: tuple[int, ...], strides: tuple[int, ...], aligned: bool
) -> Geometry:
    elements = math.prod(sizes[k] for k in levels(kernel, "map"))
    outer = math.prod(sizes[k] for k in levels(kernel, "reduce"))
    vectors = sizes[-1] // width(kernel) if _rows_aligned(kernel, strides, aligned) else 0
    items = vectors or sizes[-1]
    x = min(threads(kernel), power_of_two(_divide_up(items, 2)))
    y = min(threads(kernel) // x, power_of_two(elements))
    down = min(HIGHEST, _divide_up(elements, y))
    wanted = min(SPLIT_BLOCKS // down, items * outer // (x * LEAST_LOADS))
    across = _between(1, wanted, _divide_up(items, x * 2 * unroll(kernel)))
    depth = _between(1, wanted // across, outer)
    return Geometry((across, down, depth), (x, y, 1), vectors, 1, across * depth)


def _lanes(kernel: Kernel, sizes: tuple[int, ...]) -> Geometry:
    """Return the launch where each thread has a place along the loops that stay."""
    elements = math.prod(n for n, loop in zip(sizes, kernel.loops, strict=True) if loop == "map")
    x = min(threads(kernel), power_of_two(elements))
    return Geometry((_divide_up(elements, x), 1, 1), (x, 1, 1), 0)


def _reduce_outer(kernel: Kernel, sizes: tuple[int, ...]) -> Geometry:
    groups = math.prod(sizes[k] for k in levels(kernel, "map"))
    rows = math.prod(sizes[k] for k in levels(kernel, "reduce"))
    wanted = power_of_two(_divide_up(rows, rows_at_once(kernel)))
    x = min(threads(kernel) // min(8, wanted), power_of_two(sizes[-1]))
    y = min(threads(kernel) // x, wanted)
    across, depth = _divide_up(sizes[-1], x), min(HIGHEST, groups)
    down = _between(1, SPLIT_BLOCKS // (across * depth), rows // (y * LEAST_LOADS))
    return Geometry((across, down, depth), (x, y, 1), 0, 1, down)
