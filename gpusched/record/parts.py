"""Complex numbers in expressions: pairs of real ones, from where they are read to where written.

Kernels compute with real numbers only. A complex value is split into its parts where an operation
needs them, and joined where it is a result; what was joined is split into the same nodes again.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import part
from gpusched.plan.expression import Apply, Node, UnfusibleError

if TYPE_CHECKING:
    from gpusched.record.record import Recorder

Parts = tuple[Node, Node]
"""The real and the imaginary part."""

LOST = "Casting complex values to real discards the imaginary part"
"""What NumPy warns of."""


def split(recorder: Recorder, node: Node) -> Parts:
    """Return the parts of a node; the imaginary part of a real one is zero."""
    if node.dtype.kind != "c":
        return node, recorder.cast(0, node.dtype)
    if isinstance(node, Apply) and node.operation == "complex":
        real, imaginary = node.arguments
        return real, imaginary
    dtype = part(node.dtype)
    return recorder.apply("real", (node,), dtype), recorder.apply("imag", (node,), dtype)


def apart(recorder: Recorder, node: Node) -> Parts:
    """Return the parts of a node as arrays of its shape, for what takes one without the other.

    A part by itself may be smaller: the imaginary part of ``x + 1j`` is a number.
    """
    first, second = (_whole(recorder, each, node.shape) for each in split(recorder, node))
    return first, second


def _whole(recorder: Recorder, found: Node, shape: tuple[int, ...]) -> Node:
    """Return a part as an array of a shape, which may be written to."""
    if found.shape == shape:
        return found

    def repeated(array: np.ndarray) -> np.ndarray:
        return np.broadcast_to(array, shape).copy()

    return recorder.made_leaf(recorder.register(found), repeated, copies=True)


def joined(recorder: Recorder, parts: Parts) -> Node:
    """Return the complex node of two parts of the same dtype."""
    return recorder.apply("complex", parts, np.result_type(parts[0].dtype, np.complex64))


def cast(recorder: Recorder, value: Any, dtype: np.dtype) -> Node:
    """Return a value as a node of another dtype, as NumPy's ``astype`` does; one is complex.

    Raises
    ------
    UnfusibleError
        Where NumPy would warn that imaginary parts are lost, or that a number is out of bounds.
    """
    if dtype.kind == "c":
        wanted = part(dtype)
        first, second = (recorder.cast(each, wanted) for each in _given(recorder, value, dtype))
        return joined(recorder, (first, second))
    if dtype.kind != "b":
        raise UnfusibleError(GraphBreak.DTYPE, f"{value.dtype} to {dtype}, of which NumPy warns")
    first, second = (recorder.cast(each, dtype) for each in split(recorder, value))
    return recorder.apply("logical_or", (first, second), dtype)


def real(recorder: Recorder, node: Node, dtype: np.dtype) -> Node:
    """Return the real parts of complex numbers in another dtype, with NumPy's warning of it."""
    found = recorder.cast(_whole(recorder, split(recorder, node)[0], node.shape), dtype)
    recorder.warned.append(np.exceptions.ComplexWarning(LOST))
    return found


def _given(recorder: Recorder, value: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """Return the parts of a node or of a number that is to be complex."""
    if isinstance(value, Node):
        return split(recorder, value)
    with np.errstate(all="ignore"):
        found = np.asarray(value).astype(dtype)[()]
    if cmath.isfinite(value) and not np.isfinite(found):
        raise UnfusibleError(GraphBreak.OPERAND, f"number out of bounds for {dtype}")
    return found.real, found.imag


def totals(recorder: Recorder, combine: str, node: Node, add: Callable[[Node], Node]) -> Node:
    """Return the node of a reduction or scan of complex numbers: sums are those of the parts."""
    if combine != "add":
        raise UnfusibleError(GraphBreak.DTYPE, f"{combine} of complex numbers")
    first, second = map(add, apart(recorder, node))
    return joined(recorder, (first, second))
