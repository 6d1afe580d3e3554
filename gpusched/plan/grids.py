"""Arrays side by side in a grid that are joined: what is inside which, and what across."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from dask.array import core
from dask.core import reshapelist

from gpusched.backends.buffer_pool import owner
from gpusched.backends.devices import HOST, copy_into
from gpusched.dataclass import dataclass
from gpusched.emit.policy import NARROWEST
from gpusched.plan.plan import Call, Register, Registers

Index = tuple[slice, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """What a view shows of a whole."""

    axes: Shape
    """By axis of the view: the axis of the whole."""
    start: Shape
    """By axis of the view: where its first element is."""


def seen(whole: Any, view: Any) -> Seen | None:
    """Return what a view shows of a contiguous array; None if its axes are not the array's."""
    ndim = whole.ndim
    if view.ndim != ndim:
        return None
    # No two axes with several elements have the same stride.
    along = {step: k for k, step in enumerate(whole.strides) if whole.shape[k] > 1}
    moving = [k for k in range(ndim) if view.shape[k] > 1]
    if any(view.strides[k] not in along for k in moving):
        return None
    wide = {k: along[view.strides[k]] for k in moving}
    used = set(wide.values())
    if len(used) < len(wide):
        return None
    others = iter([k for k in range(ndim) if k not in used])
    axes = tuple([wide[k] if k in wide else next(others) for k in range(ndim)])
    left = view.ctypes.data - whole.ctypes.data
    start = []
    for stride in whole.strides:
        place, left = divmod(left, stride)
        start.append(place)
    found = Seen(axes, tuple([start[axis] for axis in axes]))
    ends = zip(axes, found.start, view.shape, strict=True)
    return found if all(k + n <= whole.shape[axis] for axis, k, n in ends) else None


@dataclass(frozen=True)
class Grid:
    """Arrays side by side, and what they are joined to."""

    register: int
    """Of the whole."""
    whole: Any
    parts: dict[Shape, int]
    """Register by place in the grid."""
    edges: tuple[tuple[int, ...], ...]
    """Along each axis: where the parts begin, and where the last one ends."""
    side_by_side: bool
    """Whether each part is contiguous in memory, row after row."""

    def divided(self) -> set[int]:
        """Return the axes along which rows of a wide part end, or have gaps between them."""
        axes = range(self.whole.ndim)
        wide = {
            axis
            for axis, edges in zip(axes, self.edges, strict=True)
            if len(edges) > 2 and max(b - a for a, b in itertools.pairwise(edges)) >= NARROWEST
        }
        if wide and not self.side_by_side:
            wide.update(range(min(wide) + 1, self.whole.ndim))
        return wide

    def shows(self, array: Any) -> bool:
        """Return whether an array is a view of the whole."""
        return type(array) is np.ndarray and owner(array) is self.whole

    def seen(self, view: Any) -> Seen | None:
        """Return what a view shows of the whole; None if its axes are not the whole's."""
        return seen(self.whole, view)

    def copies(self, box: Index) -> Iterator[tuple[int, Index, Index]]:
        """Yield (register, part that is read, place in the box) of the arrays that a box shows."""
        along = []
        for wanted, edges in zip(box, self.edges, strict=True):
            found = []
            for number, (begin, end) in enumerate(itertools.pairwise(edges)):
                start, stop = max(begin, wanted.start), min(end, wanted.stop)
                if start < stop:
                    part = slice(start - begin, stop - begin)
                    found.append((number, part, slice(start - wanted.start, stop - wanted.start)))
            along.append(found)
        for each in itertools.product(*along):
            place, part, target = zip(*each, strict=True)
            yield self.parts[place], part, target


@dataclass(frozen=True)
class Reach:
    """What a kernel's elements need of a grid's whole."""

    grid: Grid
    axes: Shape
    """By axis of the kernel: the axis of the whole."""
    first: Shape
    """Along each axis of the kernel: the first element that an element needs, counted from its own
    place."""
    last: Shape
    """The last one."""

    def of_whole(self, along: Sequence[Any]) -> tuple[Any, ...]:
        """Return what is given by axis of the kernel by axis of the whole."""
        return tuple([along[self.axes.index(axis)] for axis in range(len(self.axes))])

    def box(self, index: Index) -> Index:
        """Return what a part of the kernel's elements needs, by axis of the kernel."""
        ends = zip(index, self.first, self.last, strict=True)
        return tuple(slice(i.start + first, i.stop + last) for i, first, last in ends)

    def inside(self, axis: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, stop, part) of the elements that need one part only along an axis."""
        for part, (begin, end) in enumerate(itertools.pairwise(self.grid.edges[self.axes[axis]])):
            yield begin - self.first[axis], end - self.last[axis], part


Places = tuple[Shape, ...]
"""By grid, the place of the one array that is needed, by axis of the kernel."""


def cut(shape: Shape, reaches: Sequence[Reach]) -> Iterator[tuple[Index, Places | None]]:
    """Yield the parts of results, each with the arrays that it needs, if it is one of each grid.

    Parameters
    ----------
    shape
        Of the results.
    reaches
        What they need.
    """
    yield from _cut(shape, reaches, (), ())


def _cut(shape: Shape, reaches: Sequence[Reach], index: Index,
         parts: tuple[Shape, ...]) -> Iterator[tuple[Index, Places | None]]:  # fmt: skip
    axis = len(index)
    if axis == len(shape):
        yield index, tuple(zip(*parts, strict=True))
        return
    done, length = 0, shape[axis]
    for start, stop, each in _inside(length, reaches, axis):
        if done < start:
            yield _rest(index, slice(done, start), shape), None
        yield from _cut(shape, reaches, (*index, slice(start, stop)), (*parts, each))
        done = stop
    if done < length:
        yield _rest(index, slice(done, length), shape), None


def _inside(length: int, reaches: Sequence[Reach], axis: int) -> list[tuple[int, int, Shape]]:
    """Return (start, stop, parts) of what needs one part of each grid along an axis, if wide."""
    found: list[tuple[int, int, Shape]] = [(0, length, ())]
    for reach in reaches:
        both = ((max(a, c), min(b, d), (*parts, part))
                for a, b, parts in found for c, d, part in reach.inside(axis))  # fmt: skip
        found = [each for each in both if each[1] - each[0] >= min(NARROWEST, length)]
    return found


def _rest(index: Index, along: slice, shape: Shape) -> Index:
    """Return a part of results that goes through all of the axes to come."""
    return (*index, along, *(slice(0, length) for length in shape[len(index) + 1 :]))


def concatenate_shaped(arrays: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return what dask's function of this name does, with NumPy's arrays copied by blocks.

    Parameters
    ----------
    arrays
        Side by side in a grid, in C order.
    shape
        How many there are along each axis.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.plan.grids import concatenate_shaped
    >>> concatenate_shaped([np.zeros((1, 2)), np.ones((1, 1))], (1, 2))
    array([[0., 0., 1.]])
    """
    alike = all(type(each) is np.ndarray and each.ndim == len(shape) for each in arrays)
    dtype = arrays[0].dtype if arrays and shape and alike else None
    if dtype is None or dtype.kind not in PLAIN or dtype.metadata is not None:
        return core.concatenate_shaped(arrays, shape)
    lengths = core.chunks_from_arrays(reshapelist(shape, arrays))
    whole = HOST.empty(tuple(map(sum, lengths)), dtype)
    for place, each in zip(core.slices_from_chunks(lengths), arrays, strict=True):
        copy_into(whole[place], each)
    return whole


PLAIN = frozenset("biufc")
"""Kinds of dtypes whose arrays may be in used memory, which keeps no metadata."""


def is_join(function: Any) -> bool:
    """Return whether a function joins arrays side by side, in a way that a plan can do without."""
    return function is concatenate_shaped or function is core.concatenate_shaped


def grid_of(call: Call, arrays: Registers) -> Grid | None:
    """Return how a call joins arrays; None where it does not just put equal kinds side by side."""
    parts, counts = call.args
    (register,) = call.results
    whole = arrays[register]
    if type(whole) is not np.ndarray or owner(whole) is not whole or not whole.flags.c_contiguous:
        return None
    if whole.size == 0 or whole.ndim != len(counts):
        return None
    if not all(type(part) is Register and not part.scalar for part in parts):
        return None
    places = itertools.product(*map(range, counts))
    registers = dict(zip(places, (part.number for part in parts), strict=True))
    shapes = {place: arrays[k].shape for place, k in registers.items()}
    if any(len(shape) != whole.ndim for shape in shapes.values()):
        return None
    edges = tuple(
        tuple(accumulate((shapes[_on(axis, k, counts)][axis] for k in range(n)), initial=0))
        for axis, n in enumerate(counts)
    )
    for place, k in registers.items():
        expected = tuple(e[p + 1] - e[p] for e, p in zip(edges, place, strict=True))
        if type(arrays[k]) is not np.ndarray or arrays[k].dtype != whole.dtype:
            return None
        if shapes[place] != expected:
            return None
    contiguous = all(arrays[k].flags.c_contiguous for k in registers.values())
    return Grid(register, whole, registers, edges, contiguous)


def _on(axis: int, number: int, counts: Shape) -> Shape:
    """Return a place on the first line of the grid along an axis."""
    return tuple(number if k == axis else 0 for k in range(len(counts)))
