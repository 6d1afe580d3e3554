"""Loops over strided arrays: which order, which of them merge, and how each operand moves."""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.emit.generate import stride_names
from gpusched.emit.kernel import Access, Kernel

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Loops:
    """A nest of loops, outermost first."""

    sizes: tuple[int, ...]
    """Iterations of each loop."""
    strides: tuple[Strides, ...]
    """Per operand, the elements to move per iteration of each loop."""
    reduced: tuple[bool, ...]
    """Which loops run over reduced axes."""
    axes: tuple[tuple[int, ...], ...]
    """The axes that each loop goes through, slowest first, without those of length 1."""

    def access(self, operand: int) -> tuple[Access, ...]:
        """Return how one operand moves in each loop."""
        strides = self.strides[operand]
        last = len(strides) - 1
        return tuple(_access(stride, level == last) for level, stride in enumerate(strides))


def passed(kernel: Kernel, constants: tuple[Any, ...], loops: Loops) -> tuple[Any, ...]:
    """Return what a kernel is passed after its arrays: constants, loop sizes and strides.

    Last comes how many rows were joined before, where the kernel `resumes`.
    """
    strides = [loops.strides[operand][level] for operand, level, _ in stride_names(kernel)]
    return (*constants, *loops.sizes, *strides, *[0] * kernel.resumes)


def element_strides(array: Any) -> Strides:
    """Return the elements from one to the next along each axis of an array; 0 if all are one."""
    return tuple([0 if n == 1 else step // array.itemsize
                  for n, step in zip(array.shape, array.strides, strict=True)])  # fmt: skip


def _access(stride: int, innermost: bool) -> Access:
    if stride == 0:
        return Access.BROADCAST
    return Access.UNIT if stride == 1 and innermost else Access.STRIDED


def axis_order(
    shape: tuple[int, ...], operands: list[Strides], axes: Container[int] = ()
) -> tuple[int, ...]:
    """Return the axes from slowest to fastest in memory, in C order where strides do not say.

    Parameters
    ----------
    shape
        Lengths of the iteration space.
    operands
        Per operand, elements to move per axis of `shape`.
    axes
        The reduced axes. Windows that overlap along another axis are reduced one after the other,
        while their elements are in the cache, but for those along contiguous elements: of these,
        neighbouring results are reduced together: a third of the time for 16 elements (AMD EPYC).

    Examples
    --------
    >>> axis_order((3, 4), [(1, 3), (1, 3)])
    (1, 0)
    >>> axis_order((3, 4), [(0, 1), (4, 1)])
    (0, 1)
    >>> axis_order((2, 5, 4), [(4, 4, 1)], axes=(0,)), axis_order((2, 7, 3), [(9, 1, 1)], axes=(2,))
    ((1, 0, 2), (0, 2, 1))
    """

    def slowness(axis: int) -> list[int]:
        steps = [abs(strides[axis]) for strides in leading]
        reduced = [(axis in axes) == (step > 1) for step in steps if step]
        return [*(-step for step in steps), *reduced]

    full = [s for s in operands if all(x or n == 1 for x, n in zip(s, shape, strict=True))]
    leading = [s for s in (full or operands) if any(s)][:1]
    movable = [axis for axis, length in enumerate(shape) if length != 1]
    found = sorted(movable, key=slowness)
    if found == movable:
        return tuple(range(len(shape)))
    fixed = [axis for axis, length in enumerate(shape) if length == 1]
    return tuple(fixed + found)


def labels_outside(
    order: tuple[int, ...], labels: int, shape: tuple[int, ...], operands: list[Strides]
) -> tuple[int, ...]:
    """Return the axes of a reduction by label, that of the labels not as the fastest one.

    What has the same label is joined one after the other, each time waiting for the sum before: a
    loop over other results inside gives the processor something else to do meanwhile.

    Parameters
    ----------
    order
        The axes from slowest to fastest.
    labels
        The axis along which labels are.
    shape, operands
        As in `axis_order`.

    Examples
    --------
    >>> labels_outside((0, 1, 2), 2, (5, 4, 9), [(36, 9, 1), (0, 0, 1)])
    (2, 0, 1)
    >>> labels_outside((0, 1, 2), 2, (5, 4, 9), [(99, 9, 1), (0, 0, 1)])
    (0, 2, 1)
    >>> labels_outside((0, 1), 0, (9, 4), [(4, 1), (1, 0)])
    (0, 1)
    """
    others = [axis for axis in order if axis != labels and shape[axis] != 1]
    if order[-1] != labels or not others:
        return order
    inside = len(others) - 1
    while inside and all(
        steps[others[inside - 1]] == steps[others[inside]] * shape[others[inside]]
        for steps in operands
    ):
        inside -= 1  # the two are one loop
    fixed = [axis for axis in order if axis != labels and shape[axis] == 1]
    return (*fixed, *others[:inside], labels, *others[inside:])


def in_c_order(order: tuple[int, ...], axes: Container[int]) -> tuple[int, ...]:
    """Return the axes of a reduction that counts elements, the reduced ones as C order has them.

    Parameters
    ----------
    order
        The axes from slowest to fastest.
    axes
        The reduced ones.

    Examples
    --------
    >>> in_c_order((2, 1, 0), (0, 2))
    (0, 1, 2)
    """
    rising = iter(sorted(axis for axis in order if axis in axes))
    return tuple([next(rising) if axis in axes else axis for axis in order])


def nest(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    operands: list[Strides],
    axes: tuple[int, ...],
    cut: Container[int] = (),
    labelled: Container[int] = (),
) -> Loops:
    """Return the loops over `shape` in `order`, merged wherever every operand allows it.

    Parameters
    ----------
    shape
        Lengths of the iteration space; none is 0.
    order
        Its axes, slowest first.
    operands
        Per operand, elements to move per axis of `shape`; 0 where it broadcasts or is reduced.
    axes
        The reduced axes.
    cut
        Axes that merge with none outside of them.
    labelled
        Axes that are a loop even if their length is 1.

    Examples
    --------
    >>> nest((3, 4), (0, 1), [(4, 1), (4, 1)], ())
    Loops(sizes=(12,), strides=((1,), (1,)), reduced=(False,), axes=((0, 1),))
    """
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in operands]
    reduced: list[bool] = []
    merged: list[tuple[int, ...]] = []
    for axis in order:
        length = shape[axis]
        if length == 1 and axis not in labelled:
            continue
        steps = [s[axis] for s in operands]
        mergeable = (
            sizes
            and axis not in cut
            and reduced[-1] == (axis in axes)
            and all(s[-1] == step * length for s, step in zip(strides, steps, strict=True))
        )
        if mergeable:
            sizes[-1] *= length
            merged[-1] += (axis,)
            for s, step in zip(strides, steps, strict=True):
                s[-1] = step
        else:
            sizes.append(length)
            merged.append((axis,))
            reduced.append(axis in axes)
            for s, step in zip(strides, steps, strict=True):
                s.append(step)
    if not sizes:
        sizes, reduced, merged = [1], [bool(axes)], [()]
        for s in strides:
            s.append(0 if axes else 1)
    return Loops(tuple(sizes), tuple(map(tuple, strides)), tuple(reduced), tuple(merged))


def falls(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether axes go from the slowest in memory to the fastest, all forwards.

    Examples
    --------
    >>> from gpusched.plan.layout import falls
    >>> falls((4, 6), (96, 16)), falls((6, 4), (8, 48)), falls((4,), (-8,)), falls((1, 4), (0, 8))
    (True, False, False, True)
    """
    steps = [s for s, n in zip(strides, shape, strict=True) if n != 1]
    return all(map(operator.gt, steps, [*steps[1:], 0]))
