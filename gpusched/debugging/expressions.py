"""What a kernel's statements read, and how they are written for people."""

from __future__ import annotations

import re

from gpusched.debugging.readable import ReadableKernel
from gpusched.emit.operations import DEFINED
from gpusched.plan.expression import Node

_WORD = re.compile(r"\b[^\W\d]\w*")


def variables_read(kernel: ReadableKernel, numbers: list[int], node: Node) -> set[str]:
    """Return the variables that some statements, or a node that is an input, read."""
    found = {word for k in numbers for word in _WORD.findall(kernel.statements[k][1])}
    number = kernel.use.builder.names.get(id(node))
    if isinstance(number, int) and number < len(kernel.parameters):
        found.add(kernel.parameters[number])
    return found


def with_values(expression: str, constants: dict[str, str]) -> str:
    """Return an expression with numbers for a kernel's constants, and short names of functions.

    Examples
    --------
    >>> from gpusched.debugging.expressions import with_values
    >>> with_values("a * s0 + s1", {"s0": "2.5"})
    'a * 2.5 + s1'
    """
    return _WORD.sub(lambda match: constants.get(match[0], short_name(match[0])), expression)


def short_name(operation: str) -> str:
    """Return an operation's name; that of a user's function without the digest."""
    return operation.rpartition("_")[0] if operation in DEFINED else operation
