"""Kernels that read arrays in their places which dask would join first, so that nobody joins them.

`map_overlap` joins each chunk and its neighbours' edges before a function sees them, and `rechunk`
joins what was apart: a copy of all elements, which a kernel then reads once. Here the kernel is
called for each part of its result that needs one of the arrays only, and for the rest, along the
borders of the arrays, on copies of the few rows and columns around those. Results are the same bit
by bit, since every element of an elementwise kernel is computed alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from gpusched import events
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import note
from gpusched.emit.kernel import Access
from gpusched.emit.policy import LEAST_JOINED, NARROWEST
from gpusched.plan import timing
from gpusched.plan.grids import (
    Grid,
    Index,
    Places,
    Reach,
    Shape,
    cut,
    grid_of,
    is_join,
)
from gpusched.plan.layout import passed
from gpusched.plan.plan import Call, Launch, Registers, Step, reads, window, written

NEEDED = GraphBreak.READ_WHOLE("joined chunks are read by what is not an elementwise kernel")
UNALIKE = GraphBreak.FORM("other arrays than NumPy's of one dtype, or other axes are read")
SMALL = GraphBreak.SMALL("joined chunks are small, or are read in small parts")
LOOPS = GraphBreak.READ_WHOLE("the kernel has no loops for parts of what it reads")
COPIED = GraphBreak.NO_GAIN("most of what is joined is around borders, and would be copied too")


@dataclass(frozen=True)
class Copy:
    """The halo of a border between joined arrays: the elements around it."""

    shape: Shape
    dtype: np.dtype
    parts: tuple[tuple[int, Index, Index], ...]
    """(register, part that is read, place)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def made(self, registers: Registers) -> np.ndarray:
        """Return the array."""
        whole = np.empty(self.shape, self.dtype)
        for register, part, place in self.parts:
            whole[place] = registers[register][part]
        return whole


@dataclass(frozen=True)
class Region:
    """A part of a kernel's results, computed by one call."""

    index: Index
    """Where it is."""
    inputs: tuple[tuple[int, Index], ...]
    """By input: its register, or ``~k`` for copy ``k``, and the part that is read."""
    numbers: tuple[Any, ...]
    """Constants, loop sizes and strides (in elements)."""
    copies: tuple[Copy, ...]

    @property
    def nbytes(self) -> int:
        """Of the copies."""
        return sum(copy.nbytes for copy in self.copies)


@dataclass(kw_only=True)
class UnjoinedLaunch(Launch):
    """A launch whose kernel is called for each part of its results by itself.

    Its inputs are all that it reads, in no order.
    """

    parts: int
    """Arrays that would be joined."""
    regions: tuple[Region, ...]

    @property
    def bytes_copied(self) -> int:
        """What is copied of the halos."""
        return sum(region.nbytes for region in self.regions)

    @property
    def largest_copy(self) -> int:
        """The most of that at a time."""
        return max((region.nbytes for region in self.regions), default=0)

    def __call__(self, registers: Registers) -> None:
        """Run the kernel for each part of its results."""
        buffers = []
        for output in self.outputs:
            buffers.append(output.allocate(self.device))
            registers[output.register] = buffers[-1]

        def compute() -> int:
            each = (self._compute(region, registers, buffers) for region in self.regions)
            return reduce(operator.or_, each)

        errors = timing.timed(self, compute) if events.active else compute()
        if errors:
            note(errors)

    def _compute(self, region: Region, registers: Registers, buffers: list[Any]) -> int:
        """Compute one part; return the floating-point errors."""
        copies = [copy.made(registers) for copy in region.copies]
        arguments = [
            window((copies[~source] if source < 0 else registers[source])[part])
            for source, part in region.inputs
        ]
        arguments += [window(buffer[region.index]) for buffer in buffers]
        return self.kernel.call(*arguments, *region.numbers) or 0


def divided(steps: list[Step], read: Sequence[Any], shape: Shape, arrays: Registers) -> set[int]:
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
            if grid is None or grid.whole.nbytes < LEAST_JOINED or grid.whole.ndim != len(shape):
                continue
            if any(array is grid.whole or array.base is grid.whole for array in read):
                found |= {axis for axis in grid.divided() if shape[axis] >= NARROWEST}
    return found


def arranged(
    steps: list[Step],
    kept: Collection[int],
    arrays: Registers,
    apart: list[tuple[str, Reason]] | None = None,
) -> list[Step]:
    """Return the steps of a plan without the joining of arrays that kernels read where they are.

    Parameters
    ----------
    steps
        The steps in the order in which they were recorded.
    kept
        Registers that are needed after the last one.
    arrays
        What the registers held.
    apart
        Gets why arrays are joined all the same.
    """
    joins = [grid_of(s, arrays) for s in steps if isinstance(s, Call) and is_join(s.function)]
    grids = [grid for grid in joins if grid is not None]
    reasons = [UNALIKE] * (len(joins) - len(grids))
    while grids:
        found = _without(grids, steps, kept, arrays)
        if not isinstance(found, _Needed):
            steps = found
            break
        grids.remove(found.grid)
        reasons.append(found.reason)
    if apart is not None:
        apart += [("join", reason) for reason in reasons]
    return steps


class _Needed(NamedTuple):
    """What has to be joined."""

    grid: Grid
    reason: Reason


def _without(grids: list[Grid], steps: list[Step], kept: Collection[int],
             arrays: Registers) -> list[Step] | _Needed:  # fmt: skip
    """Return the steps without the joining of grids and views of these, or one that is needed."""
    views = {grid.register: grid for grid in grids}
    found: list[Step] = []
    for step in steps:
        read = [views[register] for register in sorted(reads(step) & views.keys())]
        if not read:
            if views.keys().isdisjoint(written(step)):
                found.append(step)
        elif type(step) is Launch:
            unjoined = _unjoined(step, views, arrays)
            if isinstance(unjoined, Reason):
                return _Needed(read[-1], unjoined)
            found.append(unjoined)
        elif isinstance(step, Call) and step.single and read[0].shows(arrays[step.results[0]]):
            views[step.results[0]] = read[0]
        else:
            return _Needed(read[-1], NEEDED)
    results = (_Needed(views[register], NEEDED) for register in views if register in kept)
    return next(results, found)


def _unjoined(launch: Launch, views: dict[int, Grid], arrays: Registers) -> UnjoinedLaunch | Reason:
    """Return a launch that reads grids' arrays where they are, or why there is none."""
    kernel = launch.kernel.kernel
    elementwise = set(kernel.loops) == {"map"} and all(o.is_result for o in launch.outputs)
    elementwise = elementwise and kernel.labels is None and not kernel.tables
    if not launch.device.can.parts or kernel.edition or not elementwise:
        return NEEDED
    shape = launch.outputs[0].shape
    if math.prod(shape) == 1:
        return SMALL
    starts: dict[int, dict[int, Shape]] = {}
    for register in views.keys() & set(launch.inputs):
        grid = views[register]
        start = grid.start(arrays[register])
        if start is None or arrays[register].shape != shape:
            return UNALIKE
        starts.setdefault(grid.register, {})[register] = start
    reading = _Reading(launch, [(views[k], each) for k, each in sorted(starts.items())], arrays)
    nbytes = sum(reach.grid.whole.nbytes for reach in reading.reaches)
    cuts = list(cut(shape, reading.reaches))
    if nbytes < LEAST_JOINED * len(cuts):
        return SMALL
    regions = [reading.region(index, places) for index, places in cuts]
    found = tuple(region for region in regions if region is not None)
    if len(found) < len(regions):
        return LOOPS
    parts = [k for reach in reading.reaches for k in reach.grid.parts.values()]
    others = [register for register in launch.inputs if register not in reading.starts]
    inputs = tuple(dict.fromkeys(parts + others))
    # What is read beside what would be joined may be one of its parts.
    read = min(launch.bytes_read, sum(arrays[register].nbytes for register in inputs))
    given = {field.name: getattr(launch, field.name) for field in fields(launch) if field.init}
    changed = {"inputs": inputs, "bytes_read": read}
    unjoined = UnjoinedLaunch(**given | changed, parts=len(parts), regions=found)
    return unjoined if 2 * unjoined.bytes_copied <= nbytes else COPIED


class _Reading:
    """How a launch reads views of what would be joined.

    Parameters
    ----------
    launch
        What reads.
    views
        Each grid that it reads, and where the views of its whole begin, by their registers.
    arrays
        What the registers held.
    """

    def __init__(self, launch: Launch, views: list[tuple[Grid, dict[int, Shape]]],
                 arrays: Registers) -> None:  # fmt: skip
        self.launch = launch
        self.arrays = arrays
        self.reaches: list[Reach] = []
        self.starts: dict[int, tuple[int, Shape]] = {}
        """By register of a view: the number of its grid, and where its first element is."""
        for number, (grid, starts) in enumerate(views):
            along = list(zip(*starts.values(), strict=True))
            self.reaches.append(Reach(grid, tuple(map(min, along)), tuple(map(max, along))))
            self.starts |= {register: (number, start) for register, start in starts.items()}

    def region(self, index: Index, places: Places | None) -> Region | None:
        """Return how a part of the results is computed; None if the kernel has no loops for it."""
        copies: tuple[Copy, ...] = ()
        if places is None:
            copies = tuple(self._copy(reach, index) for reach in self.reaches)
        inputs: list[tuple[int, Index]] = []
        strides = []
        for register in self.launch.inputs:
            if register not in self.starts:
                array = self.arrays[register]
                inputs.append((register, _shared(array.shape, index)))
            else:
                number, start = self.starts[register]
                source, origin, array = self._source(number, index, places, copies)
                moves = zip(index, start, origin, strict=True)
                inputs.append((source, tuple(slice(i.start + s - o, i.stop + s - o)
                                             for i, s, o in moves)))  # fmt: skip
            strides.append(_strides(array, len(index)))
        for output in self.launch.outputs:
            steps = accumulate(reversed(output.shape[1:]), operator.mul, initial=1)
            strides.append(tuple(steps)[::-1])
        numbers = _numbers(self.launch, index, strides)
        return None if numbers is None else Region(index, tuple(inputs), numbers, copies)

    def _copy(self, reach: Reach, index: Index) -> Copy:
        box = reach.box(index)
        shape = tuple(along.stop - along.start for along in box)
        return Copy(shape, reach.grid.whole.dtype, tuple(reach.grid.copies(box)))

    def _source(self, number: int, index: Index, places: Places | None,
                copies: tuple[Copy, ...]) -> tuple[int, list[int], Any]:  # fmt: skip
        """Return what stands for a grid's whole: a register or a copy, its place, and its array."""
        reach = self.reaches[number]
        if places is None:
            box, copy = reach.box(index), copies[number]
            return ~number, [along.start for along in box], np.empty(copy.shape, copy.dtype)
        register = reach.grid.parts[places[number]]
        ends = zip(reach.grid.edges, places[number], strict=True)
        return register, [edges[k] for edges, k in ends], self.arrays[register]


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
    kernel, loops = launch.kernel.kernel, launch.loops
    lengths = [along.stop - along.start for along in index]
    sizes = tuple([math.prod(lengths[axis] for axis in axes) for axes in loops.axes])
    steps = []
    for operand, own in zip(kernel.operands, strides, strict=True):
        found = []
        for access, axes, size in zip(operand.access, loops.axes, sizes, strict=True):
            step = own[axes[-1]]
            merged = all(lengths[a] == 1 or own[a] == own[b] * lengths[b]
                         for a, b in pairwise(axes))  # fmt: skip
            fixed = {Access.UNIT: 1, Access.BROADCAST: 0}.get(access, step)
            if not merged or (step != fixed and size > 1):
                return None
            found.append(step)
        steps.append(tuple(found))
    return passed(kernel, launch.constants, replace(loops, sizes=sizes, strides=tuple(steps)))
