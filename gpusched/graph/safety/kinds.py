"""What the interpreter knows of a value: few kinds, and what two of them have in common."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass


class Kind(enum.Enum):
    """Kinds of values that are not known exactly."""

    ARRAY = "an array"
    """A chunk, lazy or not, or whatever else a task is given; or what NumPy makes of such."""
    FRESH = "a new array"
    """An array that this call has made, which a lazy chunk stands for that knows what shows it; or
    a number."""
    PLAIN = "a number"
    """A number, dtype, slice or None: immutable, and the same for all chunks of one kind."""
    SHAPE = "a tuple of numbers"
    """A tuple of such numbers."""
    NUMBERS = "an array of numbers"
    """An array that no chunk decides, which the function has made: never a lazy chunk. Arithmetic
    may be given it; it may not be changed or be a result, which is to be another array each time.
    """
    TEXT = "a string"
    """A string that does not depend on chunks."""
    STATE = "a context of numpy.errstate"
    LEAVING = "the end of a context of numpy.errstate"
    ERROR = "an exception"
    """One that raising needs nothing of the user's to make."""
    NULL = "nothing, where the interpreter of Python keeps a place"
    UNBOUND = "a variable that may not have a value"
    OTHER = "a value that gpusched cannot determine"


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is known while a function is examined."""

    value: Any
    name: str = ""
    """How the function reads it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and same(self.value, other.value)

    def __hash__(self) -> int:
        # As `same` compares: a graph of many chunks may give each call another number.
        constant = is_constant(self.value)
        return hash((type(self.value), repr(self.value))) if constant else id(self.value)


@dataclass(frozen=True)
class Items:
    """A tuple that the function builds, or is given, with the kinds of its items."""

    items: tuple[Any, ...]


GIVEN = frozenset([None])
"""Where lists are made that may not change, as others may see them."""


@dataclass(frozen=True)
class Listing:
    """A list that nothing changes, with the kinds of its items."""

    items: tuple[Any, ...]
    places: frozenset[Any] = GIVEN
    """Where it may have been made (see `gpusched.graph.safety.lists`)."""


@dataclass(frozen=True)
class Row:
    """A list or tuple of any length, or what a loop runs over."""

    item: Any
    """Of what kind each item is; None if there are none."""
    places: frozenset[Any] = GIVEN
    """As a `Listing` has them."""


@dataclass(frozen=True)
class Options:
    """A dictionary of keyword arguments, with the kinds of its values."""

    names: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Method:
    """A method that has been read and not been called yet."""

    owner: Any
    name: str


@dataclass(frozen=True)
class Made:
    """A function that another one has defined."""

    code: types.CodeType
    outer: Any
    """What goes through the function that has defined it."""


@dataclass(frozen=True)
class Generated:
    """What a generator expression gives, once somebody takes all of it."""

    made: Made
    first: Any
    """What its first loop runs over."""


SCALARS = frozenset(np.sctypeDict.values()) - {np.object_, np.void}
"""NumPy's scalar types whose values never change; classes derived from them are not."""
CONSTANTS = SCALARS | {bool, int, float, complex, str, bytes, type(None), type(Ellipsis)}
"""Types whose values never change."""


def is_constant(value: Any) -> bool:
    """Return whether a value is a constant, a NumPy scalar's type, or a tuple of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    if type(value) is slice:
        return all(map(is_constant, (value.start, value.stop, value.step)))
    if isinstance(value, type):
        return value in SCALARS or value in (bool, int, float)
    return type(value) in CONSTANTS or isinstance(value, np.dtype)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are one object, or constants without any difference."""
    if left is right:
        return True
    equal = type(left) is type(right) and is_constant(left) and is_constant(right)
    return equal and repr(left) == repr(right)


def is_array(kind: Any) -> bool:
    """Return whether a value may be a lazy chunk."""
    return kind is Kind.ARRAY or kind is Kind.FRESH


def is_plain(kind: Any) -> bool:
    """Return whether a value is one number, dtype, slice or None that no chunk decides."""
    if isinstance(kind, Known):
        constant = is_constant(kind.value)
        return constant and not isinstance(kind.value, str | bytes | tuple | frozenset)
    return kind is Kind.PLAIN


def is_text(kind: Any) -> bool:
    """Return whether a value is a string that no chunk decides."""
    if isinstance(kind, Known):
        return type(kind.value) is str
    return kind is Kind.TEXT


def items_of(kind: Any) -> tuple[Any, ...] | None:
    """Return the kinds of a tuple's items, if their number is known."""
    if isinstance(kind, Items):
        return kind.items
    if isinstance(kind, Known) and type(kind.value) is tuple:
        return tuple(Known(item, kind.name) for item in kind.value)
    return None


def known_items(kind: Any) -> tuple[Any, ...] | None:
    """Return the kinds of a tuple's or a list's items, if their number is known."""
    return kind.items if isinstance(kind, Listing) else items_of(kind)


def is_shape(kind: Any) -> bool:
    """Return whether a value is a tuple of numbers, or of such, that no chunk decides."""
    items = items_of(kind)
    if items is not None:
        return all(is_plain(item) or is_shape(item) for item in items)
    return kind is Kind.SHAPE


def is_settled(kind: Any) -> bool:
    """Return whether no chunk decides a value: a branch on it is the same for all of a kind."""
    if isinstance(kind, Known):
        return is_constant(kind.value)
    if isinstance(kind, Items):
        return all(map(is_settled, kind.items))
    return is_plain(kind) or is_text(kind) or kind is Kind.SHAPE


def is_listed(kind: Any) -> bool:
    """Return whether a value is a list, or a tuple, of what no chunk decides."""
    if isinstance(kind, Listing):
        return all(is_settled(item) or is_listed(item) for item in kind.items)
    return isinstance(kind, Row) and (kind.item is None or is_settled(kind.item))


def is_operand(kind: Any) -> bool:
    """Return whether arithmetic of NumPy's may be given a value."""
    return is_array(kind) or is_plain(kind)


def is_result(kind: Any) -> bool:
    """Return whether a value may be a function's result: it is, or holds, arrays and numbers."""
    items = kind.items if isinstance(kind, Items) else ()
    return is_array(kind) or is_settled(kind) or (bool(items) and all(map(is_result, items)))


def is_known(kind: Any) -> bool:
    """Return whether a value is known, or a tuple of such values."""
    return isinstance(kind, Known) or (isinstance(kind, Items) and all(map(is_known, kind.items)))


def joined(left: Any, right: Any) -> Any:
    """Return the kind of a value that is of one kind or of the other."""
    if left == right:
        return left
    if is_plain(left) and is_plain(right):
        return Kind.PLAIN
    if is_text(left) and is_text(right):
        return Kind.TEXT
    if is_operand(left) and is_operand(right):
        return Kind.ARRAY if Kind.ARRAY in (left, right) else Kind.FRESH
    first, second = items_of(left), items_of(right)
    if first is not None and second is not None and len(first) == len(second):
        return Items(tuple(map(joined, first, second)))
    if is_shape(left) and is_shape(right):
        return Kind.SHAPE
    if isinstance(left, Listing | Row) and isinstance(right, Listing | Row):
        one, other = row_of(left).item, row_of(right).item
        item = joined(one, other) if one and other else one or other
        # A loop may put a list into another one, and that into another one, without end.
        if _depth(item) > 1:
            return Kind.OTHER
        return Row(item, left.places | right.places)
    return Kind.OTHER


def _depth(kind: Any) -> int:
    """Return how many lists hold each other in a value, with tuples between them or without.

    Other values that hold some have nothing in common with each other (`joined`).
    """
    if isinstance(kind, Row):
        return _depth(kind.item) + 1
    items = kind.items if isinstance(kind, Items | Listing) else ()
    return max(map(_depth, items), default=0) + isinstance(kind, Listing)


def row_of(kind: Listing | Row) -> Row:
    """Return the kind of a list whose length may be another one."""
    if isinstance(kind, Row):
        return kind
    item = reduce(joined, kind.items) if kind.items else None
    return Row(item, kind.places)


def extended(kind: Listing | Row, items: Iterable[Any]) -> Any:
    """Return the kind of a list that may have got some items more, or others."""
    return joined(row_of(kind), Listing(tuple(items), kind.places))
