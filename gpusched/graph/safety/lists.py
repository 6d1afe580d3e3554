"""Lists that a function makes and changes.

A list is known by the place that makes it, and has other names wherever it goes. So where anything
changes a list, it counts for all lists of that place, at any time: each of them may hold all that
one of them ever gets, in any order. When something is found that they may hold besides, the
function is gone through once more, from its beginning. Lists that nothing changes keep the kind of
each of their items.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusched.breaks import GraphBreak
from gpusched.graph.safety.calls import held_by, refuse
from gpusched.graph.safety.kinds import GIVEN, Listing, Row, extended, known_items

if TYPE_CHECKING:
    from gpusched.graph.safety.instructions import State


class ChangedError(Exception):
    """A list may hold something else than it was known to hold so far."""


class Lists:
    """What lists may hold that are changed.

    Notes
    -----
    Belongs to one examination, of a function and of all that it calls.
    """

    def __init__(self) -> None:
        self._rows: dict[Any, Row] = {}
        """By the place that makes them."""

    def made(self, kind: Listing | Row, place: Any) -> Listing | Row:
        """Return the kind of a new list."""
        made = replace(kind, places=frozenset([place]))
        if place not in self._rows:
            return made
        self.change(made, held_by(made))
        return self._rows[place]

    def change(self, changed: Listing | Row, items: Iterable[Any]) -> None:
        """Note that a list may have got some items, or has its items in another order.

        Raises
        ------
        Unsafe
            If others may see it, or no kind is known of what holds itself.
        ChangedError
            If it may hold more than was known. Otherwise its kind is a row of all that it may hold.
        """
        if not changed.places.isdisjoint(GIVEN):
            refuse(GraphBreak.OWN_CHANGES, "changes a list that others may see")
        before = dict(self._rows)
        for place in changed.places:
            known = self._rows.get(place, Row(None, frozenset([place])))
            found = extended(known, items)
            if not isinstance(found, Row):
                refuse(GraphBreak.OWN_CHANGES, "puts a list into itself, or into one like it")
            self._rows[place] = found
        if before != self._rows:
            raise ChangedError

    def built(self, state: State, depth: int, more: Any) -> State:
        """Return the state after something has been put into a list that is being built.

        Parameters
        ----------
        state
            Before: the topmost value is what is put into it, or holds that.
        depth
            Where on the stack, without that value, the list is.
        more
            The kind of a list or tuple of what it gets.
        """
        stack = list(state.stack[:-1])
        into, items = stack[-depth], held_by(more)
        if not isinstance(into, Listing | Row):
            refuse(GraphBreak.OWN_CODE, "builds a list of what is not known")
        if into.places & self._rows.keys():
            self.change(into, items)
        elif isinstance(into, Listing) and known_items(more) is not None:
            stack[-depth] = replace(into, items=(*into.items, *items))
        else:
            stack[-depth] = extended(into, items)
        return replace(state, stack=tuple(stack))
