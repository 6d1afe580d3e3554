"""A stencil's function -> a scalar function: each ``a[-1, 0]`` becomes a parameter of its own.

What results is compiled from the user's own syntax tree, so that its lines are those of the user's
file, in errors and in a debugger.
"""

from __future__ import annotations

import ast
import types
from typing import Any

from gpusched.dataclass import dataclass
from gpusched.kernels.definition import outside_of
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.trees import compiled, tree_of
from gpusched.kernels.unrolling import Constants, Unrolling, constant

Offset = tuple[int, ...]


@dataclass(frozen=True)
class Neighbourhood:
    """What a stencil reads."""

    function: types.FunctionType
    """Takes a number for each neighbour, and for each parameter without neighbours."""
    offsets: tuple[tuple[Offset, ...] | None, ...]
    """Of each parameter: offsets of the neighbours read, or None if it is used as a number."""

    @property
    def ndim(self) -> int:
        """Number of axes of the arrays whose neighbours are read."""
        return next(len(found[0]) for found in self.offsets if found)

    @property
    def depth(self) -> tuple[int, ...]:
        """How far away neighbours are, along each axis."""
        every = [offset for found in self.offsets for offset in found or ()]
        return tuple(max(abs(o[axis]) for o in every) for axis in range(self.ndim))


def analyse(function: Any) -> Neighbourhood:
    """Find the neighbours that a function reads.

    Raises
    ------
    KernelError
        If its source cannot be found, or an offset is no constant, with the line.
    """
    tree, filename = _parsed(function)
    names = [argument.arg for argument in tree.args.args]
    tree = Constants(names, _integers(function)).visit(tree)
    tree = Unrolling(names, filename, function.__name__).visit(tree)
    finder = _Finder(names, filename, function.__name__)
    tree.body = [finder.visit(statement) for statement in tree.body]
    if not any(finder.found.values()):
        raise KernelError(
            f"{filename}:{tree.lineno}: stencil {function.__name__} reads no neighbours; write "
            "for example a[-1, 0] for the element before along the first axis"
        )
    _check_axes(finder, filename, tree.lineno)
    parameters = [inner for name in names for inner in ([*finder.found[name].values()] or [name])]
    tree.args.args = [ast.arg(arg=name) for name in parameters]
    tree.args.defaults = []  # those of the user's function are given in its call
    offsets = tuple(tuple(finder.found[name]) or None for name in names)
    return Neighbourhood(compiled(tree, filename, function), offsets)


def _integers(function: types.FunctionType) -> dict[str, Any]:
    """Return the integers, and tuples of such, that a function reads from outside."""

    def is_constant(value: Any) -> bool:
        if isinstance(value, tuple):
            return all(map(is_constant, value))
        return type(value) is int

    return {name: value for name, value in outside_of(function).items() if is_constant(value)}


def _parsed(function: Any) -> tuple[ast.FunctionDef, str]:
    if not isinstance(function, types.FunctionType):
        raise KernelError(f"a stencil is made of a Python function, not of {function!r}")
    code = function.__code__
    tree = tree_of(function)
    if tree is None:
        raise KernelError(
            f"{location(code)}: the source of stencil {function.__name__} was not found, or has "
            "changed since it was run, and it shows which neighbours are read; define it with def "
            "in a file or a notebook cell"
        )
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise KernelError(
            f"{location(code)}: stencil {function.__name__} can only have positional parameters"
        )
    return tree, code.co_filename


class _Finder(ast.NodeTransformer):
    """Replaces subscripts of parameters by names, and notes them."""

    def __init__(self, names: list[str], filename: str, stencil: str) -> None:
        self.found: dict[str, dict[Offset, str]] = {name: {} for name in names}
        self._plain: dict[str, int] = {}
        self._filename = filename
        self._stencil = stencil

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not (isinstance(node.value, ast.Name) and node.value.id in self.found):
            return self.generic_visit(node)
        name = node.value.id
        offset = self._offset(node)
        known = self.found[name]
        if not known and name in self._plain:
            self._mixed(name, self._plain[name])
        if offset not in known:
            known[offset] = f"{name}__{len(known)}"
        return ast.copy_location(ast.Name(known[offset], ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.found:
            if self.found[node.id]:
                self._mixed(node.id, node.lineno)
            self._plain.setdefault(node.id, node.lineno)
        return node

    def _mixed(self, name: str, line: int) -> None:
        raise KernelError(
            f"{self._filename}:{line}: stencil {self._stencil} uses {name} with and without an "
            f"offset; write {name}[0, 0] for the element itself (with a zero for each axis)"
        )

    def _offset(self, node: ast.Subscript) -> Offset:
        value = constant(node.slice)
        items = value if isinstance(value, tuple) else (value,)
        if not isinstance(node.ctx, ast.Load) or not all(type(i) is int for i in items):
            raise KernelError(
                f"{self._filename}:{node.lineno}: stencil {self._stencil} uses "
                f"{ast.unparse(node)}; offsets are constant integers, and neighbours are only read"
            )
        return items


def _check_axes(finder: _Finder, filename: str, line: int) -> None:
    counts = {len(offset) for found in finder.found.values() for offset in found}
    if len(counts) > 1:
        raise KernelError(f"{filename}:{line}: offsets of {sorted(counts)} axes in one stencil")
