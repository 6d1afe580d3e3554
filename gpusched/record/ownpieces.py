"""Pieces that a task has cut off chunks, of which NumPy would have arrays of their own.

Kernels read a piece where it is, in the chunk. Whoever else is to see it, or a view of it, gets an
array of its own.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from gpusched.dataclass import dataclass
from gpusched.plan.expression import Leaf, Node
from gpusched.plan.plan import Register, changed
from gpusched.record import catalogue
from gpusched.record.views import Change, leaf_view

if TYPE_CHECKING:
    from gpusched.record.record import Recorder


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


@catalogue.own("moves")
def copied(array: Any) -> Any:
    """Return a copy of an array, in C order."""
    return array.copy()
