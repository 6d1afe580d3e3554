"""Loops over constant offsets, as stencils have them -> their statements, once for each offset."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from gpusched.emit.parsing import parse_expression
from gpusched.kernels.errors import KernelError

MOST = 4096
"""Statements that loops become at most."""

_ALLOWED = (ast.Tuple, ast.List, ast.Constant, ast.UnaryOp, ast.BinOp, ast.USub, ast.UAdd, ast.Add,
            ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Load, ast.expr_context)  # fmt: skip


def constant(node: ast.expr) -> Any:
    """Return the value of an expression of constant integers; None for any other.

    Examples
    --------
    >>> import ast
    >>> from gpusched.kernels.unrolling import constant
    >>> [constant(ast.parse(text, mode="eval").body) for text in ("(1 - 2, -3)", "n")]
    [(-1, -3), None]
    """
    inner = list(ast.walk(node))
    if not all(isinstance(each, _ALLOWED) for each in inner):
        return None
    if any(type(each.value) is not int for each in inner if isinstance(each, ast.Constant)):
        return None
    expression = ast.fix_missing_locations(ast.Expression(copy.deepcopy(node)))
    try:
        return eval(compile(expression, "<offset>", "eval"), {"__builtins__": {}})
    except (ZeroDivisionError, OverflowError, MemoryError):
        return None


class Unrolling(ast.NodeTransformer):
    """Writes loops out whose variables are in the offsets of neighbours.

    Parameters
    ----------
    parameters
        Names of the function's parameters.
    filename, stencil
        For messages.
    """

    def __init__(self, parameters: list[str], filename: str, stencil: str) -> None:
        self._parameters = parameters
        self._filename = filename
        self._stencil = stencil
        self._written = 0

    def visit_For(self, node: ast.For) -> Any:
        """Return a loop's statements instead of the loop, or the loop."""
        names = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        if not self._in_offsets(node, names):
            return self.generic_visit(node)
        values = self._values(node)
        self._count(node, values)
        written: list[ast.stmt] = []
        for value in values:
            body = [copy.deepcopy(statement) for statement in node.body]
            put = _Put(_assigned(node.target, value))
            for statement in body:
                found = self.visit(put.visit(statement))
                written += found if isinstance(found, list) else [found]
        if values:
            # What follows the loop may read the last one.
            last = ast.copy_location(ast.Constant(values[-1]), node)
            written.append(ast.copy_location(ast.Assign([node.target], last), node))
        return written

    def _count(self, node: ast.For, values: Sequence[Any]) -> None:
        """Count a loop's statements before any is written: there may be too many to write."""
        most = (MOST - self._written) // len(node.body)
        if values[most:]:  # Since len() of a long range raises.
            self._fail(node, f"become more than {MOST} statements")
        self._written += len(values) * len(node.body)

    def _in_offsets(self, node: ast.For, names: set[str]) -> bool:
        return any(
            isinstance(inner, ast.Name) and inner.id in names
            for each in ast.walk(node)
            if isinstance(each, ast.Subscript)
            and isinstance(each.value, ast.Name)
            and each.value.id in self._parameters
            for inner in ast.walk(each.slice)
        )

    def _values(self, node: ast.For) -> Sequence[Any]:
        left = (ast.Break, ast.Continue)
        if node.orelse or any(isinstance(each, left) for each in ast.walk(node)):
            self._fail(node, "have break, continue or else")
        changed = {n.id for s in node.body for n in ast.walk(s)
                   if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
        if changed & {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            self._fail(node, "assign to their own variable")
        call = node.iter
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and not call.keywords:
            bounds = [constant(each) for each in call.args]
            if bounds and all(type(each) is int for each in bounds):
                return range(*bounds)
        values = constant(call)
        if not isinstance(values, tuple | list):
            self._fail(node, "are not over constants")
        return values

    def _fail(self, node: ast.For, problem: str) -> None:
        raise KernelError(
            f"{self._filename}:{node.lineno}: stencil {self._stencil} has loops over offsets that "
            f"{problem}; write them as for i in range(-1, 2), with numbers"
        )


class Constants(ast.NodeTransformer):
    """Puts numbers from outside into the offsets of neighbours, and into what loops go over.

    Parameters
    ----------
    parameters
        Names of the function's parameters.
    outside
        Integers, and tuples of such, by the names that the function reads them by.
    """

    def __init__(self, parameters: list[str], outside: dict[str, Any]) -> None:
        self._parameters = parameters
        self._put = _Put(outside)

    def visit_For(self, node: ast.For) -> Any:
        """Put numbers into what a loop goes over."""
        node.iter = self._put.visit(node.iter)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """Put numbers into an offset."""
        if isinstance(node.value, ast.Name) and node.value.id in self._parameters:
            node.slice = self._put.visit(node.slice)
        return self.generic_visit(node)


class _Put(ast.NodeTransformer):
    """Replaces names by numbers, or by tuples of them."""

    def __init__(self, numbers: dict[str, Any]) -> None:
        self._numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._numbers or not isinstance(node.ctx, ast.Load):
            return node
        literal = parse_expression(repr(self._numbers[node.id]))
        return ast.fix_missing_locations(ast.copy_location(literal, node))


def _assigned(target: ast.expr, value: Any) -> dict[str, int]:
    """Return the number that each name of a loop's target has."""
    if isinstance(target, ast.Name) and type(value) is int:
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, tuple | list):
        found = [_assigned(each, item) for each, item in zip(target.elts, value, strict=True)]
        return {name: number for each in found for name, number in each.items()}
    raise KernelError(f"a loop over offsets gives {value!r} to {ast.unparse(target)}")
