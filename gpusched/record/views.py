"""What is seen of nodes and arrays in another way: views of them, and elements chosen by labels.

A view of what is not computed yet is computed in its place: operations are recorded once more, for
what is shown of their operands.

Pieces that a task has cut off chunks are views, too, of which NumPy would have arrays of their own.
Kernels read a piece where it is, in the chunk. Whoever else is to see it, or a view of it, gets an
array of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import SUPPORTED, computed
from gpusched.plan.expression import (
    Apply,
    Gather,
    Leaf,
    Node,
    Reduce,
    Scalar,
    Table,
    UnfusibleError,
    postorder,
)
from gpusched.plan.grids import seen
from gpusched.plan.plan import Call, Register, changed
from gpusched.record import catalogue

if TYPE_CHECKING:
    from gpusched.record.record import Recorder

Change = Callable[[np.ndarray], np.ndarray]
"""A function that only makes a view of an array."""


def is_basic(index: Any, integers: bool = True) -> bool:
    """Return whether NumPy gives a view of an array by an index: by slices, and integers.

    Examples
    --------
    >>> from gpusched.record.views import is_basic
    >>> is_basic((slice(3), None, 2)), is_basic([1, 2]), is_basic(2, integers=False)
    (True, False, False)
    """
    items = index if type(index) is tuple else (index,)
    numbers: Any = (int, np.integer) if integers else ()
    return all(
        item is None or item is Ellipsis or type(item) is slice
        or (isinstance(item, numbers) and not isinstance(item, bool))
        for item in items
    )  # fmt: skip


@dataclass
class Views:
    """What a recording knows of its views."""

    times: dict[int, int] = field(default_factory=dict)
    """By identity of a node that was not computed, how many views there have been of it."""
    again: set[int] = field(default_factory=set)
    """By identity, nodes that were recorded again for what a view shows of them."""
    gathers: bool = False
    """Whether there are elements that were chosen by labels."""


def view_of(recorder: Recorder, node: Node, change: Change, repeats: bool) -> Node:
    """Return a node seen through `change`.

    Parameters
    ----------
    repeats
        Whether several views of one node may show the same elements.

    Notes
    -----
    Operations are recorded once more for what is shown. They report the errors that the ones
    that they are parts of do, and belong to the same calls.
    """
    if isinstance(node, Scalar):
        return leaf_view(recorder, recorder.register(node), change)
    if id(node) in recorder.done:
        return leaf_view(recorder, recorder.done[id(node)], change)
    times = recorder.views.times
    count = times[id(node)] = times.get(id(node), 0) + 1
    if (turned := _turned(recorder, node, change)) is not None:
        return turned
    if isinstance(node, Reduce | Gather) or (repeats and count > 2):
        return leaf_view(recorder, recorder.register(node), change)
    assert isinstance(node, Apply)
    reduce_first(recorder, [node])
    return _pushed(recorder, node, node.shape, change, {})


def leaf_view(recorder: Recorder, register: int, change: Change) -> Leaf:
    """Return the node of a view of what a register holds."""
    found = recorder.made_leaf(register, change, copies=True)
    step = recorder.steps[-1]
    assert isinstance(step, Call)
    step.is_view = True
    recorder.pieces.viewed(register, change, found.register)
    return found


def _pushed(recorder: Recorder, node: Node, shape: tuple[int, ...], change: Change,
            moved: dict[int, Node]) -> Node:  # fmt: skip
    """Return the expression of `node`, broadcast to `shape`, with `change` on its inputs."""
    if isinstance(node, Scalar | Table):
        return node
    if id(node) not in moved:
        if recorder.is_to_be_computed(node):
            if not recorder.enforces:  # An error may be raised for what is cut off.
                recorder.views.again.add(id(node))
            arguments = tuple(_pushed(recorder, a, shape, change, moved) for a in node.arguments)
            moved[id(node)] = recorder.applied(node.operation, arguments, node.dtype, node.output,
                                               node.reports, node)  # fmt: skip
        elif node.shape == shape and (turned := _turned(recorder, node, change)) is not None:
            moved[id(node)] = turned
        else:

            def full(array: np.ndarray) -> np.ndarray:
                return change(np.broadcast_to(array, shape))

            moved[id(node)] = leaf_view(recorder, recorder.register(node), full)
    return moved[id(node)]


# Views of what is reduced ---------------------------------------------------------------


def waits_for_reductions(recorder: Recorder, node: Node) -> bool:
    """Return whether a node needs reductions that have not been computed."""
    return id(node) not in recorder.done and bool(_reductions(recorder, [node]))


def reduce_first(recorder: Recorder, nodes: list[Node]) -> None:
    """Compute the reductions that nodes need: together, as one kernel may do some of them."""
    recorder.flush(_reductions(recorder, nodes))


def _reductions(recorder: Recorder, nodes: list[Node]) -> list[Node]:
    every = postorder(nodes, lambda node: isinstance(node, Reduce))
    return [n for n in every if isinstance(n, Reduce) and id(n) not in recorder.done]


# Elements chosen by labels --------------------------------------------------------------


def gather(recorder: Recorder, node: Node, labels: Leaf, axis: int) -> Node:
    """Return the node of a node's elements at labels along an axis.

    Parameters
    ----------
    node
        What elements are taken of; it is computed first.
    labels
        As in `gpusched.plan.expression.Gather`.
    axis
        Which axis, not negative.

    Notes
    -----
    What one label chooses is computed at once, since it may be broadcast along the axis.
    """
    shape = (*node.shape[:axis], *labels.shape, *node.shape[axis + 1 :])
    if 0 in node.shape or 0 in shape:
        raise UnfusibleError(GraphBreak.EMPTY, "elements of an empty array")
    plain = node.dtype in SUPPORTED and computed(node.dtype) == node.dtype
    if not plain or node.dtype.kind == "c":
        raise UnfusibleError(GraphBreak.DTYPE, f"elements of {node.dtype} chosen by integers")
    register = recorder.register(node)

    def make() -> Node:
        recorder.operations += 1
        return Gather(node.dtype, shape, register, labels, axis)

    found = cast(Gather, recorder.interned(("gather", register, id(labels), axis), make))
    recorder.views.gathers = True
    if labels.shape == (1,) and id(found) not in recorder.done:
        recorder.flush([found])
    return found


def gathered(recorder: Recorder, nodes: list[Node]) -> list[Gather]:
    """Return what kernels of some nodes would gather, in order."""
    if not recorder.views.gathers:
        return []
    every = postorder(nodes, lambda node: id(node) in recorder.done)
    return [n for n in every if isinstance(n, Gather) and id(n) not in recorder.done]


def gather_apart(
    recorder: Recorder, roots: list[Node], place: tuple[int, int] | None = None
) -> None:
    """Compute what a kernel of `roots` would gather elsewhere than at a place, or than first.

    A kernel reads where one array of labels says, along one axis.
    """
    found = gathered(recorder, roots)
    if found:
        first = found[0].place if place is None else place
        others: list[Node] = [node for node in found if node.place != first]
        if others:
            recorder.flush(others)


def _turned(recorder: Recorder, node: Node, change: Change) -> Node | None:
    """Return what is gathered of an array whose axes are in another order; None if not that.

    It is for xarray's `interp`, which is one kernel of a chunk so, and three launches otherwise, in
    1.9 times the processor time (0.040 and 0.075 s, 100 MB).
    """
    if not isinstance(node, Gather) or id(node) in recorder.done:
        return None
    order = _permutation(node.shape, change)
    if not order:
        return None
    source = leaf_view(recorder, node.register, partial(np.transpose, axes=order))
    return gather(recorder, source, node.labels, order.index(node.axis))


def _permutation(shape: tuple[int, ...], change: Change) -> list[int]:
    """Return which axis each axis of a view was; none if the view is not a permutation of axes."""
    whole = np.empty(shape, np.int8)  # which nothing reads or writes
    view = change(whole)
    found = seen(whole, view)
    whole_size = found is not None and view.size == whole.size
    return list(found.axes) if found is not None and whole_size else []


@dataclass
class Pieces:
    """Which registers hold such pieces."""

    views: dict[int, tuple[int, tuple[Change, ...]]] = field(default_factory=dict)
    """By register, of which piece it is a view, by which functions."""
    copies: dict[int, int] = field(default_factory=dict)
    """By register of a piece, the register of its copy."""

    def __contains__(self, register: int) -> bool:
        """Return whether a register holds a piece, or a view of one."""
        return register in self.views

    def add(self, node: Node) -> None:
        """Note that what a node stands for is a piece, if it is an array that exists."""
        if isinstance(node, Leaf):
            self.views.setdefault(node.register, (node.register, ()))

    def viewed(self, register: int, change: Change, view: int) -> None:
        """Note which register holds a view of another one."""
        if register in self.views:
            piece, changes = self.views[register]
            self.views[view] = piece, (*changes, change)


def own(recorder: Recorder, register: int) -> int:
    """Return the register of the array, or of the view of it, that NumPy has for a piece."""
    pieces = recorder.pieces
    piece, changes = pieces.views[register]
    if piece not in pieces.copies:
        pieces.copies[piece] = recorder.made_leaf(piece, copied, copies=True).register
    found = pieces.copies[piece]
    for change in changes:
        found = leaf_view(recorder, found, change).register
    return found


def owning(recorder: Recorder, structure: Any) -> Any:
    """Return a structure of arguments with arrays of their own in place of pieces."""

    def owned(item: Any) -> Any:
        if type(item) is Register and item.number in recorder.pieces and not item.scalar:
            return Register(own(recorder, item.number))
        return item

    return changed(structure, owned) if recorder.pieces.views else structure


@catalogue.own("moves", shown="copy")
def copied(array: Any) -> Any:
    """Return a copy of an array, in C order."""
    return array.copy()
