"""Expressions -> groups of nodes, each of which is one kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.emit.operations import named
from gpusched.emit.policy import REPEATS, WORTHWHILE
from gpusched.plan.expression import (
    Apply,
    Gather,
    Leaf,
    Node,
    Reduce,
    Scalar,
    Scan,
    Segments,
    children,
    postorder,
)
from gpusched.plan.layout import axis_order
from gpusched.plan.plan import Registers

Materialised = dict[int, int]
"""Register by the identity of a node that has been computed."""


@dataclass(frozen=True)
class Group:
    """Nodes computed by one kernel: all elementwise, or reductions or scans over the same axes."""

    nodes: tuple[Node, ...]
    shape: tuple[int, ...]
    """The iteration space."""
    axes: tuple[int, ...]
    """Reduced axes, or the one that is scanned; empty for elementwise nodes."""

    @property
    def labels(self) -> Leaf | None:
        """The labels along the reduced axis, if the nodes are segmented reductions."""
        first = self.nodes[0]
        return first.labels if isinstance(first, Segments) else None

    @property
    def scanned(self) -> bool:
        """Whether the nodes are scans."""
        return isinstance(self.nodes[0], Scan)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes that results lack, or have something else along."""
        return () if self.scanned else self.axes


def groups(roots: list[Node], done: Materialised, contents: Registers) -> list[Group]:
    """Return what to compute for `roots`, in order; each reduction is computed before its users.

    What each of them gathers is gathered at one place.
    """
    stages: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    pending: defaultdict[tuple[int, Any, Any, Any], list[Node]] = defaultdict(list)
    once = _computed_once(roots, done, contents)
    wanted = {id(root) for root in roots} | once
    for node in postorder(roots):
        if isinstance(node, Leaf | Scalar) or id(node) in done:
            stages[id(node)] = 0
            continue
        if isinstance(node, Gather):
            places[id(node)] = node.place
        # What is computed once comes before what broadcasts it; others compute it themselves.
        stage = max((stages[id(child)] + (id(child) in once and child.shape != node.shape)
                     for child in children(node)), default=0)  # fmt: skip
        if isinstance(node, Reduce):
            form = (id(node.labels), node.shape) if isinstance(node, Segments) else type(node)
            group = pending[stage, node.argument.shape, node.axes, form]
            group += [each for each in node.family or [node] if each not in group]
            stage += 1
        elif id(node) in wanted:
            pending[stage, node.shape, (), None].append(node)
        stages[id(node)] = stage
        if not isinstance(node, Gather) and places:
            along = (places[id(child)] for child in children(node)
                     if id(child) in places and not isinstance(child, Reduce))  # fmt: skip
            places |= {id(node): place for place in islice(along, 1)}
    ordered = sorted(pending.items(), key=lambda item: (item[0][0], not item[0][2]))
    return [
        Group(tuple(each), shape, axes)
        for (_, shape, axes, _), nodes in ordered
        for each in (_by_place(nodes, places) if places else [nodes])
    ]


def _by_place(nodes: list[Node], places: Mapping[int, tuple[int, int]]) -> list[list[Node]]:
    """Return nodes by where they gather, since a kernel reads where one array of labels says.

    Those that gather nothing are with the first ones.
    """
    found: dict[tuple[int, int] | None, list[Node]] = {}
    first = next((places[id(node)] for node in nodes if id(node) in places), None)
    for node in nodes:
        found.setdefault(places.get(id(node), first), []).append(node)
    return list(found.values())


def _computed_once(roots: list[Node], done: Materialised, contents: Registers) -> set[int]:
    """Return the operands that are computed before the kernels that broadcast them.

    In ``x / np.sqrt(row)``, every row of `x` would have its own square roots of the same numbers,
    which takes 1.1 to 1.5 times as long, and with `exp` 1.4 to 1.9 times (AMD EPYC). Deviations
    from the means of windows take 1.9 times as long.
    What is the same along the innermost loops, the compiler computes outside of these.
    """
    costly: set[int] = set()
    found: set[int] = set()
    orders: dict[int, tuple[int, ...]] = {}
    for node in postorder(roots):
        order = orders[id(node)] = _order(node, done, contents, orders)
        if not isinstance(node, Apply) or id(node) in done:
            continue
        for operand in node.arguments:
            if id(operand) in costly and operand.shape != node.shape:
                times = times_computed(operand.shape, node.shape, order)
                if times >= max(WORTHWHILE, REPEATS * math.prod(operand.shape)):
                    found.add(id(operand))
        if _is_costly(node) or any(id(a) in costly - found for a in node.arguments):
            costly.add(id(node))
    return found


def _order(node: Node, done: Materialised, contents: Registers,
           found: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:  # fmt: skip
    """Return the axes of loops over a node from the outermost one, counted from the last axis.

    The memory of what is read says which, where a last axis of windows is reduced.
    """
    register = node.register if isinstance(node, Leaf) else done.get(id(node))
    strides = () if register is None else getattr(contents[register], "strides", ())
    whole = node.ndim == len(strides)  # and no table
    if whole and all(step or n == 1 for step, n in zip(strides, node.shape, strict=True)):
        steps = tuple([step // node.dtype.itemsize for step in strides])
        order = axis_order(node.shape, [steps], axes=(node.ndim - 1,))
        return tuple([axis - node.ndim for axis in order])
    alike = (found[id(each)] for each in children(node) if each.shape == node.shape)
    return next(alike, tuple(range(-node.ndim, 0)))


def times_computed(operand: tuple[int, ...], shape: tuple[int, ...], order: tuple[int, ...]) -> int:
    """Return how often a kernel computes an element of an operand.

    Examples
    --------
    >>> from gpusched.plan.schedule import times_computed
    >>> times_computed((5, 1), (3, 5, 4), (-3, -2, -1))
    15
    >>> times_computed((5, 1), (3, 5, 4), (-3, -1, -2))
    60
    """
    moves = [axis >= -len(operand) and operand[axis] != 1 for axis in order]
    inner = next((k for k, each in enumerate(reversed(moves)) if each), len(order))
    return math.prod([shape[axis] for axis in order[: len(order) - inner]])


def _is_costly(node: Apply) -> bool:
    operation = named(node.operation)
    return operation.heavy or operation.function is not None or "costly" in operation.traits
