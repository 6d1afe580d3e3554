"""Which floating-point errors a kernel looks for, and by what: the processor's flags, or tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusched.emit.dtypes import HALF
from gpusched.emit.floatingpoint import HAS_FLAGS, INVALID, OVERFLOW, found_by
from gpusched.emit.kernel import MOMENTS, Test
from gpusched.emit.operations import DEFINED, has, named, reports
from gpusched.plan.expression import Apply, Node, Reduce, Scalar


def watched(
    nodes: Sequence[Node], roots: Sequence[Node], order: list[Apply]
) -> tuple[int, tuple[Test, ...]]:
    """Return which of the processor's flags count, and the statements that are tested.

    Parameters
    ----------
    nodes, roots
        A kernel's results, and what each of them is, or is joined of.
    order
        The kernel's operations, in order.

    Notes
    -----
    The flags show what arithmetic raises. They do not show what a function of several steps
    raises, or whether a value has been computed that may not matter to what is made of it, or
    what the compiler has computed of each of a few values. Beside float16 they may be raised for
    nothing: they count for sums and products only, in which `Launch` sees whether that is so.
    """
    flags, tests, few, sizes = 0, [], _of_few_values(order), _sizes(order)
    halves = any(value.dtype == HALF for each in order for value in (each, *each.arguments))
    needed = set()  # What is written, or added up, as it is
    for node, root in zip(nodes, roots, strict=True):
        flags |= node.reports if isinstance(node, Reduce) and HAS_FLAGS else 0
        if not isinstance(node, Reduce) or node.combine in ("add", "multiply", MOMENTS):
            needed.add(id(root))
    for number, node in reversed(list(enumerate(order))):
        shown = HAS_FLAGS and has(node.operation, "arithmetic") and id(node) in needed
        shown = shown and not halves
        shown = shown and few.isdisjoint(map(id, node.arguments))
        errors = node.reports
        if id(node) in needed:  # Otherwise a test of it has what it is made of computed, too.
            errors &= ~_impossible(node, sizes)
        if errors and shown:
            flags |= errors
        elif errors:
            tests.append(Test(number, found_by(errors, _possible(node))))
        if (errors or id(node) in needed) and not _hides(node):
            needed.update(map(id, node.arguments))
    return flags, tuple(reversed(tests))


def _possible(node: Apply) -> int:
    """Return the errors of an operation that its result shows; none if it has a test of its own."""
    own = named(node.operation).tests.get(node.arguments[0].dtype.kind)
    return 0 if own else reports(node.operation, node.arguments[0].dtype, node.dtype)


def chosen(order: list[Apply]) -> set[int]:
    """Return the constants that values are chosen from before arithmetic is done with those.

    Knowing them, the compiler would do the arithmetic with each, and raise no error when it runs.
    """
    choosing = [node for node in order if has(node.operation, "choosing")]
    made = _made_of(order, {id(node) for node in choosing})
    reporting = [node for node in order if node.reports and has(node.operation, "arithmetic")]
    if all(made.isdisjoint(map(id, node.arguments)) for node in reporting):
        return set()
    return {id(a) for node in choosing for a in _values(node)}


def _of_few_values(order: list[Apply]) -> set[int]:
    """Return the values that are made of booleans, or of whatever else has few values."""
    few = set()
    for node in order:
        whole = node.dtype.kind in "biu" and not has(node.operation, "arithmetic")
        if has(node.operation, "few") or whole or _values(node)[0].dtype.kind == "b":
            few.add(id(node))
    return _made_of(order, few)


def _made_of(order: list[Apply], values: set[int]) -> set[int]:
    """Return some values, and all that are made of them."""
    found = set(values)
    for node in order:
        if not found.isdisjoint(map(id, _values(node))):
            found.add(id(node))
    return found


_SMALL = 1e4
"""How large numbers may be that are called small: less than half of what lies between the largest
numbers of float32, so that the largest one stays what it is if such a number is added."""

_GROWTH = {"negative": 1, "positive": 1, "absolute": 1, "fabs": 1, "astype": 1, "degrees": 58,
           "rad2deg": 58}  # fmt: skip
"""By operation, how many times as large a result may be as the operand."""


def _sizes(order: list[Apply]) -> dict[int, float]:
    """Return how large values may be that are small for certain, or NaN."""
    found: dict[int, float] = {}
    for node in order:
        if node.dtype.kind != "f" or node.dtype == HALF:
            continue
        operands = [found.get(id(a), math.inf) for a in _values(node)]
        size = math.inf
        if has(node.operation, "small"):
            size = 4.0
        elif node.operation in _GROWTH:
            size = _GROWTH[node.operation] * operands[0]
        elif has(node.operation, "choosing"):
            size = max(operands)
        elif node.operation in ("add", "subtract"):
            size = sum(operands)
        elif node.operation == "multiply":
            size = math.prod(operands)
        if size <= _SMALL:
            found[id(node)] = size
    return found


def _impossible(node: Apply, sizes: dict[int, float]) -> int:
    """Return the errors of an operation that its operands' sizes exclude.

    What is added to a small number, or taken from it, neither overflows nor is invalid, whatever it
    is: the sum is infinite or NaN only if the other number is. Products of small numbers, and their
    conversions, do not overflow.
    """
    small = [id(a) in sizes for a in node.arguments]
    sums = node.operation in ("add", "subtract") and any(small)
    products = (node.operation == "multiply" or node.operation in _GROWTH) and all(small)
    wide = node.dtype.kind == "f" and node.dtype != HALF
    return INVALID | OVERFLOW if wide and (sums or products) else 0


def _hides(node: Apply) -> bool:
    """Return whether an operand may not matter to a result.

    Of a constant NaN, one to the power of anything, and the zero that an integer is multiplied by
    or masked with, the compiler knows the result.
    """
    if node.operation in DEFINED or has(node.operation, "hiding"):
        return True
    constants = [a.value for a in node.arguments if isinstance(a, Scalar)]
    if not constants:
        return False
    if node.dtype.kind in "biu":
        return not has(node.operation, "keeping")
    powers = node.operation in ("power", "float_power")
    return any(c != c or (powers and c in (0, 1)) for c in constants)


def _values(node: Apply) -> tuple[Node, ...]:
    """Return the operands that a result is made of; not the condition of `where`."""
    return node.arguments[1:] if node.operation == "where" else node.arguments
