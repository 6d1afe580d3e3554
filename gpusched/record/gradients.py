"""`numpy.gradient`: what is inside and either end are kernels that write to the same array.

The formulas are NumPy's own (numpy/lib/_function_base_impl.py), so that results are equal bit by
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import Node, UnfusibleError
from gpusched.record.catalogue import own
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.compound import Compound
from gpusched.record.handlers import records
from gpusched.record.record import Recorder

Spacing = Any
"""The distance between neighbours: a number, or a lazy chunk of one or of each distance."""


@own("portable")
def spacing(points: np.ndarray) -> np.ndarray:
    """Return the distance from each point to the next; one for all of them if they are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.gradients import spacing
    >>> spacing(np.array([0, 2, 4])), spacing(np.array([0, 2, 3]))
    (array(2.), array([2., 1.]))
    """
    whole = np.issubdtype(points.dtype, np.integer)
    steps = np.diff(points.astype(np.float64) if whole else points)
    return steps[:1].reshape(()) if (steps == steps[0]).all() else steps


@records(np.gradient)
def _gradient(recorder: Recorder, f: Any, *varargs: Any, axis: Any = None,
              edge_order: Any = 1) -> Any:  # fmt: skip
    """Record the gradient along some axes."""
    if not isinstance(f, LazyChunk) or not f.shape or 0 in f.shape:
        raise UnfusibleError(GraphBreak.OPERAND, "a gradient of what has no elements or axes")
    if f.dtype.kind not in "iufc" or edge_order not in (1, 2):
        raise UnfusibleError(GraphBreak.OPTION, f"a gradient of {f.dtype}, or edge_order")
    axes = tuple(range(f.ndim)) if axis is None else normalize_axis_tuple(axis, f.ndim)
    if any(f.shape[k] < edge_order + 1 for k in axes):
        raise UnfusibleError(GraphBreak.EMPTY, "a gradient of too few elements")
    steps = _steps(recorder, varargs, [f.shape[k] for k in axes])
    if f.dtype.kind not in "fc":
        f = f.astype(np.float64)
    recorder.register(f._node)  # neighbours are read from memory rather than computed again
    found = tuple(_along(recorder, f, k, s, edge_order) for k, s in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _steps(recorder: Recorder, given: tuple[Any, ...], lengths: list[int]) -> list[Spacing]:
    """Return the distances along each axis, as NumPy takes them from its arguments."""
    if len(given) not in (0, 1, len(lengths)):
        raise UnfusibleError(GraphBreak.OPTION, "distances for some axes only")
    if not given:
        return [1.0] * len(lengths)
    if len(given) == 1 and np.ndim(given[0]) == 0:
        given *= len(lengths)
    if len(given) != len(lengths):
        raise UnfusibleError(GraphBreak.OPTION, "points for one of several axes")
    return [_step(recorder, *each) for each in zip(given, lengths, strict=True)]


def _step(recorder: Recorder, distances: Any, length: int) -> Spacing:
    if isinstance(distances, list | tuple):
        distances = np.asarray(distances)
    if isinstance(distances, np.ndarray) and distances.dtype.kind not in "biufc":
        raise UnfusibleError(GraphBreak.OPERAND, "distances that are no numbers")
    node = operand(recorder, distances)
    if not isinstance(node, Node) or not node.shape:
        return distances
    if node.shape != (length,) or node.dtype.kind not in "iuf":
        raise UnfusibleError(GraphBreak.OPERAND, "points that are not one for each element")
    found = recorder.derived(node, spacing)
    return LazyChunk(recorder, found, scalar=not found.shape)


def _along(recorder: Recorder, f: LazyChunk, axis: int, dx: Spacing, edge_order: int) -> LazyChunk:
    """Return the gradient along one axis."""
    before = (slice(None),) * axis

    def at(start: int | None, stop: int | None) -> tuple[slice, ...]:
        return (*before, slice(start, stop), *(slice(None),) * (f.ndim - axis - 1))

    def box(index: tuple[slice, ...]) -> tuple[slice, ...]:
        return tuple([slice(*i.indices(n)[:2]) for i, n in zip(index, f.shape, strict=True)])

    ends = _ends(f, at, dx, edge_order)
    parts = [(at(0, 1), ends[0]), (at(1, -1), _inside(f, axis, at, dx)), (at(-1, None), ends[1])]
    chunks = [(index, part) for index, part in parts if 0 not in part.shape]
    nodes = [(box(index), recorder.cast(part._node, f.dtype)) for index, part in chunks]
    return LazyChunk(recorder, f._node, fresh=True, view=Compound(recorder, nodes, f._node))


def _inside(f: LazyChunk, axis: int, at: Any, dx: Spacing) -> Any:
    if np.ndim(dx) == 0:
        return (f[at(2, None)] - f[at(None, -2)]) / (2.0 * dx)
    dx1, dx2 = dx[0:-1], dx[1:]
    a = -(dx2) / (dx1 * (dx1 + dx2))
    b = (dx2 - dx1) / (dx1 * dx2)
    c = dx1 / (dx2 * (dx1 + dx2))
    across = tuple(slice(None) if k == axis else None for k in range(f.ndim))
    a, b, c = (each[across] for each in (a, b, c))
    return a * f[at(None, -2)] + b * f[at(1, -1)] + c * f[at(2, None)]


def _ends(f: LazyChunk, at: Any, dx: Spacing, edge_order: int) -> tuple[Any, Any]:
    """Return the first and the last differences, each as an array of length 1 along the axis."""
    uniform = np.ndim(dx) == 0
    if edge_order == 1:
        first, last = (dx, dx) if uniform else (dx[0], dx[-1])
        return (f[at(1, 2)] - f[at(0, 1)]) / first, (f[at(-1, None)] - f[at(-2, -1)]) / last
    if uniform:
        front = -1.5 / dx, 2.0 / dx, -0.5 / dx
        back = 0.5 / dx, -2.0 / dx, 1.5 / dx
    else:
        dx1, dx2 = dx[0], dx[1]
        front = (-(2.0 * dx1 + dx2) / (dx1 * (dx1 + dx2)), (dx1 + dx2) / (dx1 * dx2),
                 -dx1 / (dx2 * (dx1 + dx2)))  # fmt: skip
        dx1, dx2 = dx[-2], dx[-1]
        back = (dx2 / (dx1 * (dx1 + dx2)), -(dx2 + dx1) / (dx1 * dx2),
                (2.0 * dx2 + dx1) / (dx2 * (dx1 + dx2)))  # fmt: skip
    a, b, c = front
    begin = a * f[at(0, 1)] + b * f[at(1, 2)] + c * f[at(2, 3)]
    a, b, c = back
    end = a * f[at(-3, -2)] + b * f[at(-2, -1)] + c * f[at(-1, None)]
    return begin, end
