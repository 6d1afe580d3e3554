"""The small intermediate representation: what a chunk's NumPy calls compute, with NumPy's dtypes.

A node is immutable and knows its dtype and shape.  Dtypes follow NEP 50 because NumPy itself is
asked (`numpy.ufunc.resolve_dtypes`); a conversion is a node of its own, so that a kernel's source
shows every one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import SUPPORTED

Shape = tuple[int, ...]
PythonScalar = bool | int | float
Operand = "Node | PythonScalar | np.generic"


class UnfusibleError(Exception):
    """A call that no kernel can express; its `reason` is counted."""

    def __init__(self, kind: GraphBreak, text: str) -> None:
        super().__init__(text)
        self.reason = kind(text)


class UnrecordableError(BaseException):
    """Something that a lazy chunk cannot do as an array does it: the program gets real arrays.

    Notes
    -----
    Not an `Exception`, so that no handler for such in what is being recorded takes it for an error
    of the program's own. `gpusched.record.record.Recorder.stop` raises it, and remembers.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Node:
    """Something with one value per element of an iteration space."""

    dtype: np.dtype
    """NumPy dtype of the elements."""
    shape: Shape
    """Lengths in elements."""

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, were they in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Leaf(Node):
    """An array that exists."""

    register: int
    """Where the plan keeps the array."""
    scalar: bool = False
    """Whether NumPy gave it as a scalar, rather than as an array of no dimensions."""


@dataclass(frozen=True, eq=False)
class Table(Leaf):
    """An array of one axis that an operation gets as a whole, for each element: it has no axes."""


@dataclass(frozen=True, eq=False)
class Gather(Node):
    """Elements of an array that exists, chosen along one axis: ``array[labels]`` for the first one.

    Its shape is that of the array, with the number of labels in place of the axis's length.
    """

    register: int
    """Where the plan keeps the array."""
    labels: Leaf
    """An array of int64: each is less than the axis's length. Below 0 are only those of elements
    that a segmented reduction by the same labels leaves out."""
    axis: int
    """Which axis, not negative."""

    @property
    def place(self) -> tuple[int, int]:
        """What gathers of one kernel have in common: their labels, and the axis from the end."""
        return id(self.labels), self.axis - self.ndim


@dataclass(frozen=True, eq=False)
class Scalar(Node):
    """One number known when recording."""

    value: Any
    """The number, already converted to `dtype`."""


@dataclass(frozen=True, eq=False)
class Constant(Scalar):
    """A number that is part of a kernel's source, such as how often a loop in it repeats."""


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """A scalar operation on each element."""

    operation: str
    """Name in `gpusched.emit.operations.OPERATIONS`."""
    arguments: tuple[Node, ...]
    """Operands, already of the loop's dtypes; each broadcasts to `shape`."""
    output: int = 0
    """Which result, for operations that have several (modf, frexp, divmod)."""
    reports: int = 0
    """Floating-point errors that NumPy would report of it where it was recorded: bits of
    `gpusched.emit.floatingpoint`."""


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """A reduction over some axes; a kernel of its own, or shared with others over the same axes."""

    combine: str
    """Name in `gpusched.emit.operations.COMBINES`, or in `gpusched.emit.kernel.BY_LINES`."""
    argument: Node
    """What is reduced, of dtype `dtype` unless places are counted."""
    axes: tuple[int, ...] = field(default=())
    """Reduced axes of `argument`, ascending, without duplicates."""
    keepdims: bool = False
    """Whether the reduced axes stay, with length 1."""
    family: list[Reduce] = field(default_factory=list)
    """All results of the same reduction in order, if it has several: one kernel computes them."""
    reports: int = 0
    """Floating-point errors that NumPy would report of it where it was recorded."""


@dataclass(frozen=True, eq=False)
class Segments(Reduce):
    """A reduction along one axis of the elements that have the same label: a result per label.

    Its shape is that of the argument, with the number of labels in place of the axis's length.
    """

    labels: Leaf = field(kw_only=True)
    """An array of int64, one per element of the axis: each is less than the number of labels, and
    below 0 where the element belongs to none."""
    initial: PythonScalar = field(kw_only=True)
    """What results start from: nothing that changes a value."""


@dataclass(frozen=True, eq=False)
class Scan(Reduce):
    """A scan along one axis: each element joined with all before it, one after the other.

    Its shape is that of the argument, whose axis is longer than 1.
    """


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes that `node` is computed from."""
    if isinstance(node, Apply):
        return node.arguments
    if isinstance(node, Reduce):
        return (node.argument,)
    return ()


def postorder(
    roots: list[Node], ends: Callable[[Node], bool] = lambda node: False
) -> Iterator[Node]:
    """Yield every node once, operands before what uses them; do not look below where it ends."""
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if not ends(node):
                stack.extend((child, False) for child in reversed(children(node)))


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that all `shapes` broadcast to; `ValueError` as NumPy raises it."""
    return np.broadcast_shapes(*shapes)


@lru_cache(maxsize=4096)
def _resolve(
    ufunc: np.ufunc, kinds: tuple[Any, ...], result: np.dtype | None
) -> tuple[np.dtype, ...]:
    wanted = (*(None,) * ufunc.nin, *(result,) * ufunc.nout)
    try:
        found = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), signature=wanted)
    except TypeError as error:
        raise UnfusibleError(
            GraphBreak.DTYPE, f"no loop for {', '.join(map(str, kinds))}"
        ) from error
    return found


def resolve_dtypes(
    ufunc: np.ufunc, operands: tuple[Any, ...], result: np.dtype | None = None
) -> tuple[np.dtype, ...]:
    """Return the dtypes of the loop NumPy would run: inputs, then outputs.

    Parameters
    ----------
    ufunc, operands
        What is called with what.
    result
        What the call has for ``dtype``; None for nothing.

    Raises
    ------
    UnfusibleError
        When NumPy has no such loop, or when a kernel cannot hold one of its dtypes.
    """
    kinds = tuple(_kind(operand) for operand in operands)
    found = _resolve(ufunc, kinds, result)
    for dtype in found:
        if dtype not in SUPPORTED:
            raise UnfusibleError(GraphBreak.DTYPE, f"dtype {dtype}")
    return found


def _kind(operand: Any) -> Any:
    """Return the dtype of an operand, or the type of a number of Python's without one."""
    if isinstance(operand, Node | np.generic):
        return operand.dtype
    return np.dtype(bool) if type(operand) is bool else type(operand)


def _is_within(value: PythonScalar | np.generic, limits: np.iinfo) -> bool:
    """Return whether a number becomes an integer without NumPy's noticing anything."""
    number: Any = value.item() if isinstance(value, np.generic) else value
    return bool(limits.min <= number <= limits.max)  # Exact, and False for NaN.


def scalar(value: PythonScalar | np.generic, dtype: np.dtype) -> Scalar:
    """Return `value` as a node of `dtype`; `UnfusibleError` where NumPy would report anything."""
    if np.iscomplexobj(value) and dtype.kind != "c":
        raise UnfusibleError(GraphBreak.OPERAND, f"a complex number that becomes {dtype}")
    if dtype.kind in "iu" and not _is_within(value, np.iinfo(dtype)):
        what = "Python integer" if type(value) is int else "number"
        raise UnfusibleError(GraphBreak.OPERAND, f"{what} out of bounds for {dtype}")
    with np.errstate(all="ignore"):
        found = np.asarray(value).astype(dtype)[()]
        if dtype.kind == "f" and np.isinf(found) and not math.isinf(value):
            raise UnfusibleError(GraphBreak.OPERAND, f"number out of bounds for {dtype}")
    return Scalar(dtype, (), found)
