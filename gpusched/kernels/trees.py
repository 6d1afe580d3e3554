"""Syntax trees of users' functions, and back: for kernels whose text says what they do."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types
from collections.abc import Iterable
from typing import Any

from gpusched.emit.parsing import parse


def tree_of(function: Any) -> ast.FunctionDef | None:
    """Return the syntax tree of a function, with the lines of its file; None if it has none."""
    try:
        lines, first = inspect.getsourcelines(function)
        module = parse(textwrap.dedent("".join(lines)))
        imported = _imported(function)
    except (OSError, SyntaxError):
        return None
    tree = module.body[0]
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(module, first - 1)
    # What Python finds may be another text: of a file that was edited, of another "<string>".
    filename = function.__code__.co_filename
    for names in (imported, []):
        again = compiled(copy.deepcopy(tree), filename, function, names)
        if _same(again.__code__, function.__code__):
            return tree
    return None


def _imported(function: Any) -> list[str]:
    """Return the names that the function's file imports: Python calls their attributes its way."""
    every, _ = inspect.findsource(function)
    try:
        waiting: list[ast.AST] = list(parse("".join(every)).body)
    except SyntaxError:  # Code inside of another text; what it imports may be there.
        scope = function.__globals__
        return [name for name, value in scope.items() if isinstance(value, types.ModuleType)]
    names = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return [name for name in names if name != "*"]


def _same(one: types.CodeType, other: types.CodeType) -> bool:
    """Return whether two codes do the same, to the names of variables."""
    names = ("co_code", "co_names", "co_varnames", "co_freevars")
    equal = all(getattr(one, name) == getattr(other, name) for name in names)
    return equal and _numbers(one) == _numbers(other)


def _numbers(code: types.CodeType) -> list[str]:
    """Return constants as text; docstrings are indented as the function is."""
    return [repr(c) for c in code.co_consts if not isinstance(c, str | types.CodeType)]


def compiled(
    tree: ast.FunctionDef, filename: str, function: types.FunctionType, imported: Iterable[str] = ()
) -> types.FunctionType:
    """Return the function of a changed tree, with the globals and closure of the original.

    Decorators are taken off the tree.
    """
    tree.decorator_list = []
    # Inside another function the names of the closure are what they were.
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    outer = parse(f"def outer({', '.join(cells)}):\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [tree]
    imports = [ast.Import([ast.alias(name)]) for name in imported]
    module = ast.fix_missing_locations(ast.Module([*imports, outer], []))
    outside = compile(module, filename, "exec", dont_inherit=True)
    code = _inner(_inner(outside, "outer"), tree.name)
    closure = tuple(cells[name] for name in code.co_freevars)
    return types.FunctionType(code, function.__globals__, function.__name__, None, closure)


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
