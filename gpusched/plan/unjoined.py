"""Kernels that read arrays in their places which dask would join first, so that nobody joins them.

`map_overlap` joins each chunk and its neighbours' edges before a function sees them, and `rechunk`
joins what was apart: a copy of all elements, which a kernel then reads once. Here the kernel is
called for each part of its result that needs one of the arrays only, and for the rest, along the
borders of the arrays, on copies of the few rows and columns around those. Results are the same bit
by bit, since every element of an elementwise kernel is computed alone. So are those of a reduction
by label: it joins one element after the other to what is in the results' buffers, and of two
elements of one result, the call for the first one is the earlier one, since `cut` yields what
differs along an axis alone in ascending order. How many columns it joins before the next ones does
not change that, so the kernel is made for how the parts are in memory, which need not be as their
whole would be. Of sliding windows, each is joined alone, of the rows from its first one on; where
it begins among those of one call decides in which order the numbers of a sum are added.
What `rechunk` has joined took 1.25 times the processor time where it was copied, and a stencil on
overlaps 1.14 times (2,400 x 2,400 float64); groups of joined days took 151 ms instead of 97, and
the largest of windows, of 100 MB, 1.12 times.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from gpusched import events
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import note
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.policy import LEAST_JOINED, NARROWEST
from gpusched.plan import timing
from gpusched.plan.grids import (
    Grid,
    Index,
    Places,
    Reach,
    Seen,
    Shape,
    cut,
    grid_of,
    is_join,
)
from gpusched.plan.layout import Loops, element_strides, passed
from gpusched.plan.plan import Call, Launch, Registers, Step, reads, window, written

NEEDED = GraphBreak.READ_WHOLE(
    "joined chunks are read by what is neither an elementwise kernel nor a reduction by label"
)
UNALIKE = GraphBreak.FORM("other arrays than NumPy's of one dtype, or other axes are read")
SMALL = GraphBreak.SMALL("joined chunks are small, or are read in small parts")
LOOPS = GraphBreak.READ_WHOLE("the kernel has no loops for parts of what it reads")
COPIED = GraphBreak.NO_GAIN("most of what is joined is around borders, and would be copied too")


@dataclass(frozen=True)
class Copy:
    """The halo of a border between joined arrays: the elements around it."""

    shape: Shape
    """As it is in memory."""
    axes: Shape
    """Which of its axes are those of the whole."""
    dtype: np.dtype
    parts: tuple[tuple[int, Index, Index], ...]
    """(register, part that is read, place)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self) -> np.ndarray:
        """Return the array before its elements are read."""
        return np.empty(self.shape, self.dtype).transpose(self.axes)

    def made(self, registers: Registers) -> np.ndarray:
        """Return the array."""
        whole = self.empty()
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
    loops: Loops
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

    def __post_init__(self) -> None:
        super().__post_init__()
        kernel = self.kernel.kernel
        self._numbers = [passed(kernel, self.constants, region.loops) for region in self.regions]

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
            registers[output.register] = output.buffer(self.device, registers)
            buffers.append(output.shaped(registers[output.register]))

        def compute() -> int:
            calls = zip(self.regions, self._numbers, strict=True)
            each = (self._compute(*call, registers, buffers) for call in calls)
            return reduce(operator.or_, each)

        errors = timing.timed(self, compute) if events.active else compute()
        if errors:
            note(errors)
        for output in self.outputs:
            if not output.is_result:
                output.finish(registers[output.register], registers)

    def _compute(self, region: Region, numbers: tuple[Any, ...], registers: Registers,
                 buffers: list[Any]) -> int:  # fmt: skip
        """Compute one part; return the floating-point errors."""
        copies = [copy.made(registers) for copy in region.copies]
        arguments = [
            window((copies[~source] if source < 0 else registers[source])[part])
            for source, part in region.inputs
        ]
        arguments += [window(buffer[region.index]) for buffer in buffers]
        return self.kernel.call(*arguments, *numbers) or 0


def divided(steps: list[Step], read: Sequence[Any], shape: Shape, over: int | None,
            arrays: Registers) -> set[int]:  # fmt: skip
    """Return the axes along which a kernel may be called for parts of its elements.

    Parameters
    ----------
    steps
        The steps so far.
    read
        What the kernel reads.
    shape
        Of the elements that it goes through.
    over
        The axis of the rows of windows that it reduces, if it does.
    arrays
        What the registers hold.
    """
    found: set[int] = set()
    axes_left = [k for k in range(len(shape)) if k != over]
    for step in steps:
        if isinstance(step, Call) and is_join(step.function):
            grid = grid_of(step, arrays)
            if grid is None or grid.whole.nbytes < LEAST_JOINED:
                continue
            if grid.whole.ndim != len(axes_left):
                continue
            shown = [grid.seen(_first_rows(a, over)) for a in read
                     if (a is grid.whole or grid.shows(a)) and a.ndim == len(shape)]  # fmt: skip
            for axes in {seen.axes for seen in shown if seen is not None}:
                found |= {k for k, axis in zip(axes_left, axes, strict=True)
                          if axis in grid.divided() and shape[k] >= NARROWEST}  # fmt: skip
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


@dataclass(frozen=True)
class _Needed:
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
    if not launch.device.can.cheap or kernel.edition or not _divides(launch):
        return NEEDED
    apart = {launch.inputs[k] for k in kernel.gathered} | {_labels(launch)}
    if not apart.isdisjoint(views):
        return NEEDED
    shape, over = _space(launch, arrays), _over(launch)
    rows = _inserted(shape, over, 0 if over is None else launch.loops.sizes[-2])
    if math.prod(shape) == 1:
        return SMALL
    seen: dict[int, dict[int, Seen]] = {}
    for register in views.keys() & set(launch.inputs):
        grid = views[register]
        if arrays[register].shape != rows:
            return UNALIKE
        found = grid.seen(_first_rows(arrays[register], over))
        if found is None:
            return UNALIKE
        seen.setdefault(grid.register, {})[register] = found
    if any(len({each.axes for each in of.values()}) > 1 for of in seen.values()):
        return UNALIKE
    reading = _Reading(launch, [(views[k], of) for k, of in sorted(seen.items())], shape, arrays)
    nbytes = sum(reach.grid.whole.nbytes for reach in reading.reaches)
    cuts = list(cut(shape, reading.reaches))
    if nbytes < LEAST_JOINED * len(cuts):
        return SMALL
    regions = [reading.region(index, places) for index, places in cuts]
    computed = tuple(region for region in regions if region is not None)
    if len(computed) < len(regions):
        return LOOPS
    if 2 * sum(region.nbytes for region in computed) > nbytes:
        return COPIED
    parts = [k for reach in reading.reaches for k in reach.grid.parts.values()]
    others = [register for register in launch.inputs if register not in reading.starts]
    inputs = tuple(dict.fromkeys(parts + others))
    # What is read beside what would be joined may be one of its parts.
    read = min(launch.bytes_read, sum(arrays[register].nbytes for register in inputs))
    given = {field.name: getattr(launch, field.name) for field in fields(launch) if field.init}
    fitted = _fitted(kernel, [region.loops for region in computed])
    runs = launch.kernel if fitted == kernel else launch.device.compile(fitted)
    changed = {"kernel": runs, "inputs": inputs, "bytes_read": read}
    return UnjoinedLaunch(**given | changed, parts=len(parts), regions=computed)


def _divides(launch: Launch) -> bool:
    """Return whether a kernel computes the same, called for some of its elements after others.

    That of a segmented reduction does: it joins elements to what is in the results' buffers, where
    it finds what to start from, one after the other for each result.
    """
    kernel = launch.kernel.kernel
    if kernel.tables:
        return False
    if kernel.segmented:
        return all(output.filled for output in launch.outputs)
    if kernel.windows is not None:
        return len(launch.loops.axes[kernel.windows]) == 1
    return set(kernel.loops) == {"map"} and all(o.is_result for o in launch.outputs)


def _labels(launch: Launch) -> int | None:
    """Return the register of the labels that results, or what is read, are chosen by."""
    labels = launch.kernel.kernel.labels
    return None if labels is None else launch.inputs[labels]


def _label_axis(launch: Launch) -> int | None:
    """Return the axis along which the labels are, which is a loop of its own."""
    loop = launch.kernel.kernel.label_loop
    return None if loop is None else launch.loops.axes[loop][-1]


def _over(launch: Launch) -> int | None:
    """Return the axis of the rows of windows, which is a loop of its own."""
    return None if launch.kernel.kernel.windows is None else launch.loops.axes[-2][-1]


def _first_rows(array: Any, over: int | None) -> Any:
    """Return the first rows of all windows; what has no windows as it is."""
    return array if over is None else array[(*[slice(None)] * over, 0)]


def _inserted(along: Sequence[Any], over: int | None, item: Any) -> tuple[Any, ...]:
    """Return what is given by axis with an item for the axis of windows' rows, if there is one."""
    return tuple(along) if over is None else (*along[:over], item, *along[over:])


def _space(launch: Launch, arrays: Registers) -> Shape:
    """Return how many elements a kernel computes along each axis."""
    shape, axis, labels = launch.outputs[0].result_shape, _label_axis(launch), _labels(launch)
    if launch.kernel.kernel.windows is not None and _keeps(launch, arrays):
        return tuple(n for k, n in enumerate(shape) if k != _over(launch))
    if axis is None or labels is None or not launch.kernel.kernel.segmented:
        return shape
    return (*shape[:axis], arrays[labels].size, *shape[axis + 1 :])


def _keeps(launch: Launch, arrays: Registers) -> bool:
    """Return whether the results of windows keep the axis of their rows."""
    whole = max(arrays[register].ndim for register in launch.inputs)
    return len(launch.outputs[0].result_shape) == whole


class _Reading:
    """How a launch reads views of what would be joined.

    Parameters
    ----------
    launch
        What reads.
    views
        Each grid that it reads, and what the views of its whole show, by their registers.
    shape
        Of the elements that it computes.
    arrays
        What the registers held.
    """

    def __init__(self, launch: Launch, views: list[tuple[Grid, dict[int, Seen]]], shape: Shape,
                 arrays: Registers) -> None:  # fmt: skip
        self.launch = launch
        self.arrays = arrays
        self._over, beyond = _over(launch), [0] * len(shape)
        self._rows = slice(0, 0 if self._over is None else launch.loops.sizes[-2])
        """Of a window."""
        self._slides = 0
        """The axis along which windows slide."""
        loop = launch.kernel.kernel.windows
        if loop is not None and self._over is not None:
            (slides,) = launch.loops.axes[loop]
            self._slides = slides - (slides > self._over)
            beyond[self._slides] = self._rows.stop - 1
        self.reaches: list[Reach] = []
        self.starts: dict[int, tuple[int, Shape]] = {}
        """By register of a view: the number of its grid, and where its first element is."""
        for number, (grid, seen) in enumerate(views):
            axes = next(iter(seen.values())).axes
            along = list(zip(*(each.start for each in seen.values()), strict=True))
            last = tuple(map(operator.add, map(max, along), beyond))
            self.reaches.append(Reach(grid, axes, tuple(map(min, along)), last))
            self.starts |= {register: (number, each.start) for register, each in seen.items()}
        self._labels = _label_axis(launch)
        kernel = launch.kernel.kernel
        self._chosen = [Access.LABELLED in operand.access for operand in kernel.operands]
        """By operand: whether it is used where labels say, which may be anywhere along their
        axis."""
        lengths = _inserted(shape, self._over, self._rows.stop)
        self._steps = [_steps(launch.loops, k, lengths) for k in range(len(kernel.operands))]

    def region(self, index: Index, places: Places | None) -> Region | None:
        """Return how a part of the elements is computed; None if the kernel has no loops for it."""
        copies: tuple[Copy, ...] = ()
        if places is None:
            copies = tuple(self._copy(reach, index) for reach in self.reaches)
        inputs: list[tuple[int, Index]] = []
        strides = list(self._steps)
        for k, register in enumerate(self.launch.inputs):
            if register in self.starts:
                number, start = self.starts[register]
                source, origin, own = self._source(number, index, places, copies)
                strides[k] = _inserted(own, self._over, own[self._slides])
                moves = zip(index, start, origin, strict=True)
                part = tuple(slice(i.start + s - o, i.stop + s - o) for i, s, o in moves)
                inputs.append((source, self.reaches[number].of_whole(part)))
            elif k == self.launch.kernel.kernel.labels:
                assert self._labels is not None
                inputs.append((register, (index[self._labels],)))
            else:
                along = _inserted(self._at(k, index), self._over, self._rows)
                inputs.append((register, _shared(self.arrays[register].shape, along)))
        loops = _loops(self.launch.loops, _inserted(index, self._over, self._rows), strides)
        if loops is None:
            return None
        # All outputs are of the same places.
        written = self._at(len(inputs), index)
        if self._over is not None and _keeps(self.launch, self.arrays):
            written = _inserted(written, self._over, slice(None))
        return Region(written, tuple(inputs), loops, copies)

    def _at(self, operand: int, index: Index) -> Index:
        """Return which places of an operand a part of the elements may use."""
        if not self._chosen[operand]:
            return index
        return tuple(slice(None) if k == self._labels else i for k, i in enumerate(index))

    def _copy(self, reach: Reach, index: Index) -> Copy:
        """Return a copy of what a part of the elements needs, in memory as the loops read it."""
        box = reach.box(index)
        through = (axis for axis in itertools.chain(*self.launch.loops.axes) if axis != self._over)
        loops = [axis - (self._over is not None and axis > self._over) for axis in through]
        order = [k for k in range(len(box)) if k not in loops] + loops
        shape = tuple(box[k].stop - box[k].start for k in order)
        axes = reach.of_whole([order.index(k) for k in range(len(box))])
        parts = tuple(reach.grid.copies(reach.of_whole(box)))
        return Copy(shape, axes, reach.grid.whole.dtype, parts)

    def _source(self, number: int, index: Index, places: Places | None,
                copies: tuple[Copy, ...]) -> tuple[int, list[int], Shape]:  # fmt: skip
        """Return what stands for a grid's whole: a register or a copy, its place, its strides."""
        reach = self.reaches[number]
        if places is None:
            array = copies[number].empty()
            origin, source = [along.start for along in reach.box(index)], ~number
        else:
            edges = zip(reach.axes, places[number], strict=True)
            origin = [reach.grid.edges[axis][k] for axis, k in edges]
            source = reach.grid.parts[reach.of_whole(places[number])]
            array = self.arrays[source]
        return source, origin, element_strides(array.transpose(reach.axes))


def _shared(shape: Shape, index: Index) -> Index:
    """Return which part of an operand goes with a part of the result that it broadcasts to."""
    own = index[len(index) - len(shape) :]
    return tuple(slice(None) if n == 1 else along for n, along in zip(shape, own, strict=True))


def _steps(loops: Loops, operand: int, shape: Shape) -> Shape:
    """Return the elements from one to the next of an operand along each axis of the loops."""
    found = [0] * len(shape)
    for axes, step in zip(loops.axes, loops.strides[operand], strict=True):
        for axis in reversed(axes):
            found[axis] = step
            step *= shape[axis]
    return tuple(found)


def _loops(loops: Loops, index: Index, strides: Sequence[Shape]) -> Loops | None:
    """Return the loops over a part of the elements; None if there are none with the same axes.

    Parameters
    ----------
    loops
        Over all elements.
    index
        Which part.
    strides
        By operand, the elements from one to the next along each axis of what is read of it.
    """
    lengths = [along.stop - along.start for along in index]
    for own in strides:
        for axes in loops.axes:
            if any(lengths[a] > 1 and own[a] != own[b] * lengths[b] for a, b in pairwise(axes)):
                return None
    sizes = tuple([math.prod(lengths[axis] for axis in axes) for axes in loops.axes])
    steps = tuple([tuple([own[axes[-1]] for axes in loops.axes]) for own in strides])
    return replace(loops, sizes=sizes, strides=steps)


def _fitted(kernel: Kernel, nests: Sequence[Loops]) -> Kernel:
    """Return a kernel whose inputs move as they do in all of some nests of its loops."""
    inputs = []
    for k, each in enumerate(kernel.inputs):
        access = []
        for level, own in enumerate(each.access):
            # How an operand would move in a loop that ends after one iteration does not matter.
            found = {loops.access(k)[level] for loops in nests if loops.sizes[level] > 1}
            if not found or own in (Access.LABELLED, Access.TABLE):
                found = {own}
            access.append(found.pop() if len(found) == 1 else Access.STRIDED)
        inputs.append(replace(each, access=tuple(access)))
    return replace(kernel, inputs=tuple(inputs))
