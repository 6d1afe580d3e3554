"""Arrays that are computed part by part, each part by a kernel of its own.

So is a gradient, whose ends have another formula than what is between them, and an array to whose
parts a program has assigned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.plan.expression import Leaf, Node, Reduce, Scan
from gpusched.plan.grids import seen
from gpusched.plan.kernelbuilder import Part
from gpusched.plan.layout import axis_order
from gpusched.plan.plan import Allocation
from gpusched.plan.schedule import Group, groups
from gpusched.record.record import Recorder
from gpusched.record.views import gather_apart, view_of

Box = tuple[slice, ...]
"""What is between two places along each axis of an array, both counted from its start."""


@dataclass
class Compound:
    """What a chunk shows that is computed part by part.

    Later parts are written over those before, as where a program assigns to parts of an array.

    It is computed as a whole once something reads it. Until then, what a view shows of some parts
    is computed without the others, as other operations are for what a view shows of them: of a
    gradient along chunks that `map_overlap` has given halos, that is what is between the ends. And
    what ufuncs make of it is another one (`gpusched.record.ufuncs`): a slope is computed of two
    gradients without either being written.
    """

    recorder: Recorder
    parts: list[tuple[Box, Node]]
    """Each with its values, of one dtype."""
    like: Node
    """An array of the shape, dtype and order in memory of the whole."""

    def __call__(self) -> Node:
        """Return the whole."""
        return assembled(self.recorder, self.parts, self.like)

    def shown(self, change: Callable[[np.ndarray], np.ndarray]) -> Compound | Node | None:
        """Return what a view shows; None if it shows it with axes in another order, or backwards.

        Slopes of 30 MB read and write 150 MB so, and 269 with whole arrays of parts.

        Parameters
        ----------
        change
            As in `gpusched.record.views.view_of`.
        """
        whole = np.empty(self.like.shape, np.int8)  # which nothing reads or writes
        view = change(whole)
        found = seen(whole, view) if view.size else None
        if found is None or found.axes != tuple(range(whole.ndim)):
            return None
        places = zip(found.start, view.shape, strict=True)
        box = tuple([slice(start, start + n) for start, n in places])
        parts = self.inside(box, repeats=True)
        if len(parts) == 1:
            return parts[0][1]
        return Compound(self.recorder, parts, boxed(self.recorder, self.like, box))

    def inside(self, box: Box, repeats: bool = False) -> list[tuple[Box, Node]]:
        """Return the parts of a box, counted from its start.

        Parameters
        ----------
        box
            Ends inside the whole.
        repeats
            Whether several boxes that are asked for may have the same elements.
        """
        found: list[tuple[Box, Node]] = []
        for index, node in reversed(self.parts):
            both = tuple([slice(max(a.start, b.start), min(a.stop, b.stop))
                          for a, b in zip(box, index, strict=True)])  # fmt: skip
            if all(i.start < i.stop for i in both):
                part = boxed(self.recorder, node, _counted_from(both, index), repeats)
                found.insert(0, (_counted_from(both, box), part))
                if both == box:
                    break  # What is before it does not show.
        return found

    def edges(self, axis: int) -> set[int]:
        """Return where parts begin and end along an axis."""
        return {end for index, _ in self.parts for end in (index[axis].start, index[axis].stop)}


def _counted_from(box: Box, start: Box) -> Box:
    """Return a box counted from the start of another one."""
    return tuple([slice(i.start - k.start, i.stop - k.start)
                  for i, k in zip(box, start, strict=True)])  # fmt: skip


def boxed(recorder: Recorder, node: Node, box: Box, repeats: bool = False) -> Node:
    """Return what a node has in a box of what it is broadcast to; `repeats` as in `view_of`."""
    own = box[len(box) - len(node.shape) :]
    index = tuple([i if n > 1 else slice(n) for i, n in zip(own, node.shape, strict=True)])
    whole = all(i.indices(n) == (0, n, 1) for i, n in zip(index, node.shape, strict=True))
    return node if whole else view_of(recorder, node, itemgetter(index), repeats)


def assembled(recorder: Recorder, parts: Sequence[tuple[Box, Node]], like: Node) -> Leaf:
    """Return the node of an array that is computed part by part.

    Parameters
    ----------
    parts
        Each with its values, of the array's dtype.
    like
        An array of the same shape, whose order in memory the result has.
    """
    dtype = parts[0][1].dtype
    order = axis_order(like.shape, [recorder.contents[recorder.register(like)].strides])
    shape = tuple(like.shape[axis] for axis in order)
    axes = tuple(order.index(axis) for axis in range(len(order)))
    moved = axes if axes != tuple(range(len(axes))) else None
    array = Allocation(-1, shape, dtype, moved, like.shape, dtype)
    steps = tuple(math.prod(shape[k + 1 :]) for k in axes)
    before: int | None = None
    for index, node in parts:
        if isinstance(node, Reduce) and not isinstance(node, Scan):
            recorder.register(node)  # The loops over what is reduced are not those over a part.
        gather_apart(recorder, [node])
        recorder.in_parts.append(node)
        computed = recorder.done.get(id(node))
        if computed is not None and not isinstance(node, Leaf):
            # It is copied by a kernel without operations: a sum would be one of what is copied.
            leaf = recorder.leaf_of(computed)
            node = recorder.leaf_in(computed, node.dtype, node.shape) if leaf is None else leaf
        found = groups([node], recorder.done, recorder.contents)
        *others, last = found or [Group((node,), node.shape, ())]
        for group in others:
            recorder.compute(group)
        moves = tuple(0 if n == 1 else s for n, s in zip(node.shape, steps, strict=True))
        (before,) = recorder.add_launch(last, Part(array, index, before, moves))
    assert before is not None
    return recorder.leaf_in(before, dtype, like.shape)
