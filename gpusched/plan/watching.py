"""Which floating-point errors a kernel looks for, and by what: the processor's flags, or tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusched.emit.dtypes import HALF
from gpusched.emit.floatingpoint import HAS_FLAGS, UNDERFLOW, found_by
from gpusched.emit.kernel import FIRSTS, LAST_NUMBER, MOMENTS, Test
from gpusched.emit.operations import DEFINED, has, named
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
    The flags show what arithmetic raises, and what functions raise that overflow. Where a value may
    not matter to what is made of it, a test of no error has it computed for each element: the flags
    show the errors of all that it is made of. They do not show what other functions of several
    steps raise, or what the compiler has computed of each of a few values. Beside float16 they may
    be raised for nothing: they count for sums and products only, in which `Launch` sees whether
    that is so.
    """
    flags, tests, few = 0, [], _of_few_values(order)
    halves = any(value.dtype == HALF for each in order for value in (each, *each.arguments))
    needed = set()  # What is written, or joined with others of which each matters
    for node, root in zip(nodes, roots, strict=True):
        flags |= node.reports if isinstance(node, Reduce) and HAS_FLAGS else 0
        if not isinstance(node, Reduce) or node.combine in _MATTERING:
            needed.add(id(root))
    for number, node in reversed(list(enumerate(order))):
        shown = HAS_FLAGS and _raises(node) and not halves
        shown = shown and few.isdisjoint(map(id, node.arguments))
        if node.reports and shown:
            flags |= node.reports
            if id(node) not in needed:
                tests.append(Test(number, ("wrong",), shown=True))
        elif node.reports:
            possible = named(node.operation).errors(node.arguments[0].dtype.kind)
            tests.append(Test(number, found_by(node.reports, possible)))
        # What is tested by its operands need not be computed for that.
        computed = id(node) in needed or (node.reports and (shown or not _own_test(node)))
        if computed and not _hides(node):
            needed.update(map(id, node.arguments))
    return flags, tuple(reversed(tests))


_MATTERING = ("add", "multiply", "minimum", "maximum", "fmin", "fmax", LAST_NUMBER, MOMENTS,
              *FIRSTS)  # fmt: skip
"""What joins values of which each may matter to the result, so that each is computed."""


def _raises(node: Apply) -> bool:
    """Return whether the machine code of an operation raises the errors that it reports."""
    overflows = has(node.operation, "overflows") and not node.reports & UNDERFLOW
    return overflows or has(node.operation, "arithmetic")


def _own_test(node: Apply) -> bool:
    """Return whether operands alone show the errors of an operation."""
    return node.arguments[0].dtype.kind in named(node.operation).tests


def chosen(order: list[Apply]) -> set[int]:
    """Return the constants that values are chosen from before arithmetic is done with those.

    Knowing them, the compiler would do the arithmetic with each, and raise no error when it runs.
    """
    choosing = [node for node in order if has(node.operation, "choosing")]
    made = _made_of(order, {id(node) for node in choosing})
    reporting = [node for node in order if node.reports and _raises(node)]
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


def _hides(node: Apply) -> bool:
    """Return whether an operand may not matter to a result.

    Of a constant NaN or infinity, one to the power of anything, and the zero that an integer is
    multiplied by or masked with, the compiler may know the result; so it may of two integers that
    are made of the same one, such as their difference.
    """
    if node.operation in DEFINED or has(node.operation, "hiding"):
        return True
    constants = [a.value for a in node.arguments if isinstance(a, Scalar)]
    if node.dtype.kind in "biu" and len(node.arguments) > 1:
        return not (constants and has(node.operation, "keeping"))
    if not constants:
        return False
    powers = node.operation in ("power", "float_power")
    limits = (math.inf, -math.inf, *(0, 1) * powers)
    return any(c != c or c in limits for c in constants)


def _values(node: Apply) -> tuple[Node, ...]:
    """Return the operands that a result is made of; not the condition of `where`."""
    return node.arguments[1:] if node.operation == "where" else node.arguments
