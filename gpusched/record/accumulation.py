"""Nodes that join values along axes: reductions, moments, firsts, reductions by label, scans."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.floatingpoint import INVALID, OVERFLOW
from gpusched.emit.kernel import FIRSTS, MOMENTS, PLACE
from gpusched.emit.operations import reports_of_joining
from gpusched.emit.policy import LANES
from gpusched.plan.expression import (
    Leaf,
    Node,
    PythonScalar,
    Reduce,
    Scan,
    Segments,
    UnfusibleError,
)
from gpusched.record import parts
from gpusched.record.catalogue import own
from gpusched.record.record import Recorder
from gpusched.record.views import gather_apart, gathered

WIDE = np.dtype(np.float64)
"""Of moments, whatever they are of."""

INDEX = np.dtype(np.intp)
"""Of places."""

CUMULATED: dict[str, Any] = {"add": np.cumsum, "multiply": np.cumprod}
"""Functions of array libraries that scan, by what joins."""


def reduction(
    recorder: Recorder, combine: str, node: Node, axes: tuple[int, ...], keepdims: bool
) -> Node:
    """Return the node of a reduction of `node` over `axes` (ascending, not negative)."""
    if node.dtype.kind == "c":
        return parts.totals(
            recorder, combine, node, lambda part: reduction(recorder, combine, part, axes, keepdims)
        )
    if not axes:
        adds = combine == "add" and node.dtype.kind == "f"
        # NumPy begins with zero, to which a negative zero makes no difference.
        zero = recorder.cast(0.0, node.dtype)
        return recorder.apply("add", (node, zero), node.dtype) if adds else node
    if node.shape and 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
    again = _reduced_before(combine, node, axes)
    if again is not None and keepdims:
        return again
    shape = reduced_shape(node, axes, keepdims)
    argument = node if again is None else again.argument
    errors = recorder.heeded_errors(reports_of_joining(combine, node.dtype))
    key = ("reduce", combine, axes, keepdims, errors, id(argument))

    def make() -> Node:
        recorder.operations += again is None
        return Reduce(node.dtype, shape, combine, argument, axes, keepdims, reports=errors)

    return recorder.interned(key, make)


def _reduced_before(combine: str, node: Node, axes: tuple[int, ...]) -> Reduce | None:
    """Return a node that is the same reduction of these axes: dask reduces parts, then those.

    Weighted means of windows of 30 MB read and write 78 MB so, and 138 where it is made again.
    """
    if isinstance(node, Reduce) and node.keepdims:
        return node if (node.combine, node.axes) == (combine, axes) else None
    return None


def moments(recorder: Recorder, node: Node, axes: tuple[int, ...], keepdims: bool) -> list[Reduce]:
    """Return nodes of a mean, what rounding it loses, and squares of deviations added up.

    Parameters
    ----------
    node
        Whose, of any dtype; they are of float64.
    axes, keepdims
        As in `reduction`.
    """
    if not axes or 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "moments of nothing")
    shape = reduced_shape(node, axes, keepdims)
    wide = recorder.cast(node, WIDE)
    errors = recorder.heeded_errors(INVALID | OVERFLOW)
    family: list[Reduce] = []

    def make() -> Reduce:
        recorder.operations += not family
        found = Reduce(WIDE, shape, MOMENTS, wide, axes, keepdims, family, errors)
        family.append(found)
        return found

    key = MOMENTS, axes, keepdims, errors, id(wide)
    found = [recorder.interned((*key, k), make) for k in range(3)]
    if recorder.device.can.begins and len(family) == 3:
        one = recorder.number(1, np.dtype(np.int64))
        family.append(Reduce(one.dtype, shape, "add", one, axes, keepdims, family))
    return cast(list[Reduce], found)


def firsts(recorder: Recorder, combine: str, node: Node, axes: tuple[int, ...],
           keepdims: bool) -> list[Node]:  # fmt: skip
    """Return nodes of the first of the largest or least values, and of its place among all.

    Parameters
    ----------
    combine
        Name in `gpusched.emit.kernel.FIRSTS`.
    node, axes, keepdims
        As in `reduction`. Places are counted in C order along the axes.
    """
    if node.dtype.kind == "c":
        raise UnfusibleError(GraphBreak.DTYPE, f"{FIRSTS[combine]} of complex numbers by place")
    if not axes or 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "a search of nothing")
    shape = reduced_shape(node, axes, keepdims)
    family: list[Reduce] = []

    def make() -> Reduce:
        recorder.operations += not family
        dtype, join = (INDEX, PLACE) if family else (node.dtype, combine)
        found = Reduce(dtype, shape, join, node, axes, keepdims, family)
        family.append(found)
        return found

    key = combine, axes, keepdims, id(node)
    return [recorder.interned((*key, k), make) for k in range(2)]


def reduced_shape(node: Node, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a reduction of `node` over `axes`."""
    kept = enumerate(node.shape)
    return tuple(1 if k in axes else n for k, n in kept if keepdims or k not in axes)


def segments(recorder: Recorder, combine: str, node: Node, labels: Leaf, count: int, axis: int,
             initial: PythonScalar) -> Node:  # fmt: skip
    """Return the node of reductions along an axis of what has the same label, for each label.

    Parameters
    ----------
    combine
        As in `reduction`.
    labels
        As in `gpusched.plan.expression.Segments`, one for each element along the axis.
    count
        How many labels there are.
    axis
        Which axis, not negative.
    initial
        What results start from.
    """
    if 0 in node.shape or count == 0:
        raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
    if node.dtype.kind == "c":
        return parts.totals(
            recorder, combine, node,
            lambda each: segments(recorder, combine, each, labels, count, axis, initial),
        )  # fmt: skip
    gather_apart(recorder, [node], (id(labels), axis - node.ndim))
    shape = (*node.shape[:axis], count, *node.shape[axis + 1 :])
    errors = recorder.heeded_errors(reports_of_joining(combine, node.dtype))
    key = ("segments", combine, axis, count, repr(initial), errors, id(node), id(labels))

    def make() -> Node:
        recorder.operations += 1
        return Segments(node.dtype, shape, combine, node, (axis,), reports=errors,
                        labels=labels, initial=initial)  # fmt: skip

    return recorder.interned(key, make)


def scan(recorder: Recorder, combine: str, node: Node, axis: int) -> Node:
    """Return the node of each element joined with all before it along an axis.

    Parameters
    ----------
    combine
        As in `reduction`.
    axis
        Which axis, not negative.

    Notes
    -----
    On a GPU each thread has a lane along the axis; where there are few of them (`few_lanes`),
    CuPy adds up, or multiplies, in its own order.
    """
    if 0 in node.shape:
        raise UnfusibleError(GraphBreak.EMPTY, "scan of an empty array")
    if node.dtype.kind == "c":
        return parts.totals(
            recorder, combine, node, lambda part: scan(recorder, combine, part, axis)
        )
    if node.shape[axis] == 1:
        return node
    if combine in CUMULATED and few_lanes(recorder, node, axis):
        return recorder.derived(node, _cumulated, combine, axis)
    recorder.flush([*gathered(recorder, [node])])
    errors = recorder.heeded_errors(reports_of_joining(combine, node.dtype))
    key = ("scan", combine, axis, errors, id(node))

    def make() -> Node:
        recorder.operations += 1
        return Scan(node.dtype, node.shape, combine, node, (axis,), reports=errors)

    return recorder.interned(key, make)


def few_lanes(recorder: Recorder, node: Node, axis: int) -> bool:
    """Return whether threads that have a lane along an axis each would not keep a GPU busy.

    Nor do they where neighbours read far from each other.
    """
    if recorder.device.can.host_memory:
        return False
    after = math.prod(node.shape[axis + 1 :])
    lanes = math.prod(node.shape) // node.shape[axis]
    return after < LANES or lanes < LANES * LANES


@own("portable")
def _cumulated(array: Any, combine: str, axis: int) -> Any:
    """Return sums or products of each element with all before it."""
    return CUMULATED[combine](array, axis=axis, dtype=array.dtype)
