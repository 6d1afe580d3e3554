"""Kernels that read arrays which dask would join first where those lie, so that nobody joins them.

`map_overlap` joins each chunk and its neighbours' edges before a function sees them, and `rechunk`
joins what was apart: a copy of all elements, which a kernel then reads once. Here the kernel is
called for each part of its result that needs one of the arrays only, and for the rest, along the
seams, on copies of the few rows and columns around those. Results are the same bit by bit, since
every element of an elementwise kernel is computed alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gpusched import events
from gpusched.fusion import timing
from gpusched.fusion.devices import HOST
from gpusched.fusion.generate import loop_sizes
from gpusched.fusion.grids import NARROWEST, Grid, Index, Shape, grid_of, is_join
from gpusched.fusion.kernel import Access
from gpusched.fusion.plan import Call, Launch, Registers, Step, reads, report, window

LEAST = 1 << 18
"""Bytes of what would be joined for each call of the kernel at least: a call, with what prepares
it, takes as long as copying some of that."""


@dataclass(frozen=True)
class Region:
    """A part of a kernel's results, computed by one call."""

    index: Index
    """Where it is."""
    inputs: tuple[tuple[int | None, Index], ...]
    """By input: its register, or None for the copy, and the part that is read."""
    numbers: tuple[Any, ...]
    """Constants, loop sizes and strides (in elements)."""
    shape: Shape
    """Of the copy."""
    copied: tuple[tuple[int, Index, Index], ...]
    """(register, part that is read, place) of what is copied; nothing inside one array."""

    def copy(self, registers: Registers, dtype: np.dtype) -> Any:
        """Return the elements around a seam; None inside one array."""
        if not self.copied:
            return None
        whole = np.empty(self.shape, dtype)
        for register, part, place in self.copied:
            whole[place] = registers[register][part]
        return whole


@dataclass(kw_only=True)
class Seamed(Launch):
    """A launch whose kernel is called for each part of its results by itself.

    Its inputs are all that it reads, in no order.
    """

    parts: int
    """Arrays that would be joined."""
    dtype: np.dtype
    """Of these."""
    regions: tuple[Region, ...]

    @property
    def bytes_copied(self) -> int:
        """What is copied around the seams."""
        return sum(self._copies)

    @property
    def largest_copy(self) -> int:
        """Bytes of the largest of these copies, of which one lives at a time."""
        return max(self._copies, default=0)

    @property
    def _copies(self) -> list[int]:
        copied = (region.shape for region in self.regions if region.copied)
        return [math.prod(shape) * self.dtype.itemsize for shape in copied]

    def __call__(self, registers: Registers) -> None:
        buffers = []
        for output in self.outputs:
            buffers.append(output.allocate(self.device))
            registers[output.register] = buffers[-1]

        def compute() -> int:
            each = (self._compute(region, registers, buffers) for region in self.regions)
            return reduce(operator.or_, each)

        errors = timing.timed(self, compute) if events.active else compute()
        if errors:
            report(errors)

    def _compute(self, region: Region, registers: Registers, buffers: list[Any]) -> int:
        """Compute one part; return the floating-point errors."""
        copy = region.copy(registers, self.dtype)
        arguments = [
            window((copy if register is None else registers[register])[part])
            for register, part in region.inputs
        ]
        arguments += [window(buffer[region.index]) for buffer in buffers]
        return self.kernel.call(*arguments, *region.numbers) or 0


def cut(steps: list[Step], read: Sequence[Any], shape: Shape, arrays: Registers) -> set[int]:
    """Return the axes along which a kernel may be called for parts of its results.

    Parameters
    ----------
    steps
        The steps so far.
    read
        What the kernel reads.
    shape
        Of its results.
    arrays
        What the registers hold.
    """
    found: set[int] = set()
    for step in steps:
        if isinstance(step, Call) and is_join(step.function):
            grid = grid_of(step, arrays)
            if grid is None or grid.whole.nbytes < LEAST or grid.whole.ndim != len(shape):
                continue
            if any(array is grid.whole or array.base is grid.whole for array in read):
                found |= {axis for axis in grid.divided() if shape[axis] >= NARROWEST}
    return found


def arranged(steps: list[Step], kept: Collection[int], arrays: Registers) -> list[Step]:
    """Return the steps of a plan without the joining of arrays that kernels read where they lie.

    Parameters
    ----------
    steps
        The steps in the order in which they were recorded.
    kept
        Registers that are needed after the last one.
    arrays
        What the registers held.
    """
    for step in steps:
        if isinstance(step, Call) and is_join(step.function):
            grid = grid_of(step, arrays)
            if grid is not None:
                steps = _without(step, grid, steps, kept, arrays)
    return steps


def _without(call: Call, grid: Grid, steps: list[Step], kept: Collection[int],
             arrays: Registers) -> list[Step]:  # fmt: skip
    """Return the steps without a call and the views of its result; all, if others need those."""
    views = {grid.register}
    found: list[Step] = []
    for step in steps:
        if step is call:
            continue
        if views.isdisjoint(reads(step)):
            found.append(step)
        elif type(step) is Launch:
            seamed = _seamed(step, grid, views, arrays)
            if seamed is None:
                return steps
            found.append(seamed)
        elif isinstance(step, Call) and step.single and grid.shows(arrays[step.results[0]]):
            views.add(step.results[0])
        else:
            return steps
    return found if views.isdisjoint(kept) else steps


def _seamed(launch: Launch, grid: Grid, views: set[int], arrays: Registers) -> Seamed | None:
    """Return a launch that reads a grid's arrays where they lie; None if that gains nothing."""
    kernel = launch.kernel.kernel
    elementwise = set(kernel.loops) == {"map"} and all(o.is_result for o in launch.outputs)
    if launch.device.name != HOST.name or kernel.edition or not elementwise:
        return None
    shape = launch.outputs[0].shape
    if math.prod(shape) == 1:
        return None
    starts = {}
    for register in views.intersection(launch.inputs):
        start = grid.start(arrays[register])
        if start is None or arrays[register].shape != shape:
            return None
        starts[register] = start
    reading = _Reading(launch, grid, starts, arrays)
    cuts = list(grid.cut(shape, reading.first, reading.last))
    if grid.whole.nbytes < LEAST * len(cuts):
        return None
    regions = [reading.region(index, place) for index, place in cuts]
    others = (register for register in launch.inputs if register not in starts)
    found = tuple(region for region in regions if region is not None)
    if len(found) < len(regions):
        return None
    seamed = Seamed(
        **vars(launch) | {"inputs": tuple(dict.fromkeys((*grid.parts.values(), *others)))},
        parts=len(grid.parts),
        dtype=grid.whole.dtype,
        regions=found,
    )
    return seamed if 2 * seamed.bytes_copied <= grid.whole.nbytes else None


class _Reading:
    """How a launch reads views of what would be joined.

    Parameters
    ----------
    launch
        What reads.
    grid
        What would be joined.
    starts
        By register of a view: where its first element lies.
    arrays
        What the registers held.
    """

    def __init__(self, launch: Launch, grid: Grid, starts: dict[int, Shape],
                 arrays: Registers) -> None:  # fmt: skip
        self.launch = launch
        self.grid = grid
        self.starts = starts
        self.arrays = arrays
        self.first = tuple(map(min, zip(*starts.values(), strict=True)))
        self.last = tuple(map(max, zip(*starts.values(), strict=True)))

    def region(self, index: Index, place: Shape | None) -> Region | None:
        """Return how a part of the results is computed; None if the kernel has no loops for it."""
        ends = zip(index, self.first, self.last, strict=True)
        box = tuple(slice(i.start + first, i.stop + last) for i, first, last in ends)
        if place is None:
            copied, source = tuple(self.grid.copies(box)), None
            origin = [along.start for along in box]
            shape = tuple(along.stop - along.start for along in box)
            array = np.empty(shape, self.grid.whole.dtype)
        else:
            copied, source, shape = (), self.grid.parts[place], ()
            origin = [edges[k] for edges, k in zip(self.grid.edges, place, strict=True)]
            array = self.arrays[source]
        inputs: list[tuple[int | None, Index]] = []
        strides = []
        for register in self.launch.inputs:
            start = self.starts.get(register)
            if start is None:
                other = self.arrays[register]
                inputs.append((register, _shared(other.shape, index)))
                strides.append(_strides(other, len(index)))
            else:
                moves = zip(index, start, origin, strict=True)
                inputs.append((source, tuple(slice(i.start + s - o, i.stop + s - o)
                                             for i, s, o in moves)))  # fmt: skip
                strides.append(_strides(array, len(index)))
        for output in self.launch.outputs:
            steps = accumulate(reversed(output.shape[1:]), operator.mul, initial=1)
            strides.append(tuple(steps)[::-1])
        numbers = _numbers(self.launch, index, strides)
        return None if numbers is None else Region(index, tuple(inputs), numbers, shape, copied)


def _shared(shape: Shape, index: Index) -> Index:
    """Return which part of an operand goes with a part of the result that it broadcasts to."""
    own = index[len(index) - len(shape) :]
    return tuple(slice(None) if n == 1 else along for n, along in zip(shape, own, strict=True))


def _strides(array: Any, ndim: int) -> Shape:
    """Return the elements from one to the next along each axis of a result; 0 if all are one."""
    steps = (0 if n == 1 else step // array.itemsize
             for n, step in zip(array.shape, array.strides, strict=True))  # fmt: skip
    return (*(0 for _ in range(ndim - array.ndim)), *steps)


def _numbers(launch: Launch, index: Index, strides: Sequence[Shape]) -> tuple[Any, ...] | None:
    """Return what a kernel is passed for a part of its result; None if its loops do not fit it."""
    kernel = launch.kernel.kernel
    shape = launch.outputs[0].shape
    lengths = [along.stop - along.start for along in index]
    loops = _axes(shape, loop_sizes(kernel, launch.numbers))
    sizes = [math.prod(lengths[axis] for axis in axes) for axes in loops]
    steps = []
    for operand, own in zip(kernel.operands, strides, strict=True):
        for access, axes, size in zip(operand.access, loops, sizes, strict=True):
            step = own[axes[-1]]
            merged = all(lengths[a] == 1 or own[a] == own[b] * lengths[b]
                         for a, b in pairwise(axes))  # fmt: skip
            fixed = {Access.UNIT: 1, Access.BROADCAST: 0}.get(access, step)
            if not merged or (step != fixed and size > 1):
                return None
            if access is Access.STRIDED:
                steps.append(step)
    return (*launch.numbers[: len(kernel.parameters)], *sizes, *steps)


def _axes(shape: Shape, sizes: Sequence[int]) -> list[list[int]]:
    """Return the axes that each loop of a kernel goes through.

    Examples
    --------
    >>> from gpusched.fusion.seams import _axes
    >>> _axes((4, 1, 5, 6), (4, 30))
    [[0], [2, 3]]
    """
    left = [axis for axis, length in enumerate(shape) if length > 1]
    found = []
    for size in sizes:
        axes = [left.pop(0)]
        while math.prod(shape[axis] for axis in axes) < size:
            axes.append(left.pop(0))
        found.append(axes)
    return found
