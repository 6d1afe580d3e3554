"""What is known of a value while a function is examined: above all, whether it is its own."""

from __future__ import annotations

import enum
from abc import ABCMeta
from types import EllipsisType, MethodType, NoneType, UnionType
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass


class Kind(enum.Enum):
    """Kinds of values that are not known exactly."""

    OTHER = "a value that others may see"
    """Anything that is given to the function, or that may show such a value."""
    CHUNK = "a chunk that others may see"
    """Of these an array, or a number of NumPy's: what is computed with it is an array, too. That is
    assumed of the results of tasks (`gpusched.graph.safety.outside.Outside.chunks`)."""
    NEW = "a value of its own"
    """An array, list or dictionary that this call has made, which shares memory with nothing that
    it is given; or something that never changes, such as a number."""
    ARRAY = "a new array"
    """Of these an array, or a number: what it shows in another way is as new."""
    TABLE = "a new array of numbers"
    """Of these one that the function makes without a chunk, and as an array only."""
    ARRAYS = "a tuple of new arrays"
    MASK = "whether a comparison holds"
    """Of these a truth value, or an array of such."""
    COMPREHENSION = "what builds a list, a set or a dictionary for this call alone"
    TEXT = "a string that the function formats"
    STATE = "a context of numpy.errstate"
    LEAVING = "the end of a context of numpy.errstate"
    TYPE = "a type that the function asks a value for"
    NULL = "nothing, where the interpreter of Python keeps a place"
    UNBOUND = "a variable that may not have a value"
    MIXED = "a value that gpusched cannot determine"


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
        if type(self.value) is MethodType:
            return hash((id(self.value.__self__), id(self.value.__func__)))
        constant = is_constant(self.value)
        return hash((type(self.value), repr(self.value))) if constant else id(self.value)


@dataclass(frozen=True)
class Items:
    """A tuple that the function builds, or is given, with the kinds of its items."""

    items: tuple[Any, ...]


class Listing(Items):
    """A list that is nowhere but on the stack: it becomes `Kind.NEW` once it is anywhere else."""


class Followed(Listing):
    """A list, or a tuple, of such items and of any number of new arrays after them."""


@dataclass(frozen=True)
class Options:
    """A dictionary that nobody changes, with the kinds of its values."""

    names: tuple[tuple[str, Any], ...]


class Filling(Options):
    """An empty dictionary that is nowhere but on the stack, as with lists."""


@dataclass(frozen=True)
class Method:
    """A method that has been read and not been called yet."""

    owner: Any
    name: str


SCALARS = frozenset(np.sctypeDict.values()) - {np.object_, np.void}
"""NumPy's scalar types whose values never change; classes derived from them are not."""
_ABSTRACT = {np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact,
             np.floating, np.complexfloating}  # fmt: skip
"""NumPy's types of which no scalar is: dtypes are compared with them."""
CONSTANTS = SCALARS | {bool, int, float, complex, str, bytes, type(None), type(Ellipsis)}
"""Types whose values never change."""
PLAIN = CONSTANTS | {list, tuple, dict, slice, frozenset, np.ndarray}
"""Types of values that have the attributes that Python or NumPy gave them."""

_OF_RESULTS = ("Q", "R", "S", "U", "Vh", "eigenvalues", "eigenvectors", "logabsdet", "sign")
"""Attributes of what functions of `numpy.linalg` return: tuples whose items have names."""

ATTRIBUTES = dict.fromkeys(
    [
        "bits",
        "char",
        "dtype",
        "eps",
        "itemsize",
        "kind",
        "name",
        "nbytes",
        "ndim",
        "shape",
        "size",
        "tiny",
    ],
    Kind.NEW,
) | dict.fromkeys(["T", "imag", "real", "start", "step", "stop", "type", *_OF_RESULTS], Kind.OTHER)
"""Attributes of arrays, dtypes, slices and what `numpy.finfo` returns."""


GRIDS = (np.mgrid, np.ogrid)
"""What makes new arrays of the numbers that it is indexed by."""


def is_constant(value: Any) -> bool:
    """Return whether a value is a constant, a NumPy scalar's type, or a tuple of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    if type(value) is slice:
        return all(map(is_constant, (value.start, value.stop, value.step)))
    if isinstance(value, type):
        return value in SCALARS or value in _ABSTRACT or value in (bool, int, float)
    return type(value) in CONSTANTS or isinstance(value, np.dtype)


def is_format(value: Any) -> bool:
    """Return whether a constant is, or has in it, a string by which ``%`` may format something."""
    if type(value) in (tuple, frozenset):
        return any(map(is_format, value))
    return "%" in value if isinstance(value, str) else isinstance(value, bytes) and b"%" in value


def is_one(value: Any) -> bool:
    """Return whether no other object is the `same` as a value."""
    return not is_constant(value) or isinstance(value, bool | type | NoneType | EllipsisType)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are one object, or constants without any difference.

    Methods are what they are made of: Python makes one each time it is read.
    """
    if left is right:
        return True
    if type(left) is MethodType and type(right) is MethodType:
        return left.__self__ is right.__self__ and left.__func__ is right.__func__
    equal = type(left) is type(right) and is_constant(left) and is_constant(right)
    return equal and repr(left) == repr(right)


def settled(kind: Any) -> Any:
    """Return the kind of what is not only on the stack: it may be changed under another name."""
    return Kind.NEW if isinstance(kind, Listing | Filling) else kind


def items_of(kind: Any) -> tuple[Any, ...] | None:
    """Return the kinds of a tuple's items, if their number is known."""
    if isinstance(kind, Items):
        return None if isinstance(kind, Followed) else kind.items
    if isinstance(kind, Known) and type(kind.value) is tuple:
        return tuple(Known(item, kind.name) for item in kind.value)
    return None


def is_own(kind: Any) -> bool:
    """Return whether a change of a value is seen by nobody else; nothing changes a tuple."""
    constant = isinstance(kind, Known) and is_constant(kind.value)
    return constant or isinstance(kind, Items) or kind is Kind.TEXT or is_new(kind)


def is_new(kind: Any) -> bool:
    """Return whether the function has made a value that it may change."""
    return kind in (Kind.NEW, Kind.ARRAY, Kind.ARRAYS, Kind.MASK, Kind.TABLE)


def is_type(kind: Any) -> bool:
    """Return whether a value is a type, or several, that are compared as objects are."""
    several = items_of(kind)
    if several is not None:
        return all(map(is_type, several))
    plain = type, ABCMeta, UnionType
    return kind is Kind.TYPE or (isinstance(kind, Known) and type(kind.value) in plain)


def is_numeric(kind: Any) -> bool:
    """Return whether a value is a number, or an array of its own."""
    number = isinstance(kind, Known) and type(kind.value) in (bool, int, float, complex)
    return number or kind in (Kind.ARRAY, Kind.MASK, Kind.TABLE)


def is_array(kind: Any) -> bool:
    """Return whether a value is a new array, or a number of one."""
    return kind in (Kind.ARRAY, Kind.TABLE)


def array_of(*kinds: Any) -> Kind:
    """Return the kind of a new array that is computed of values."""
    return Kind.TABLE if kinds and all(map(is_without_chunk, kinds)) else Kind.ARRAY


def is_without_chunk(kind: Any) -> bool:
    """Return whether a value is a table, a constant, or numbers in a list or a tuple."""
    if isinstance(kind, Items):
        return all(map(is_without_chunk, kind.items))
    return kind is Kind.TABLE or (isinstance(kind, Known) and is_constant(kind.value))


def is_string(kind: Any) -> bool:
    """Return whether a value is a string that is written in the function, or that it formats."""
    return kind is Kind.TEXT or (isinstance(kind, Known) and isinstance(kind.value, str | bytes))


def joined(left: Any, right: Any) -> Any:
    """Return the kind of a value that is of one kind or of the other."""
    if left == right:
        return left
    if Kind.UNBOUND in (left, right):
        return right if left is Kind.UNBOUND else left  # Python raises if there is no value.
    left, right = settled(left), settled(right)
    first, second = items_of(left), items_of(right)
    if first is not None and second is not None and len(first) == len(second):
        return Items(tuple(map(joined, first, second)))
    if {left, right} <= {Kind.CHUNK, Kind.ARRAY, Kind.MASK, Kind.TABLE}:
        return Kind.ARRAY if Kind.CHUNK not in (left, right) else Kind.CHUNK
    if is_own(left) and is_own(right):
        return Kind.TEXT if Kind.TEXT in (left, right) else Kind.NEW
    return Kind.OTHER
