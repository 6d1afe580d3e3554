"""Makes a failing case smaller: statements and parts of expressions go while it still fails."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.differential.case import Case

ATTEMPTS = 250
"""Cases that are tried for each failing one."""

KEPT = ("main", "DATA")
"""Names without which a module is not a case."""
INPUTS = ("DATA", "sprinkled", "readonly")
"""Names of what makes the inputs, which stay as they are."""


def shrink(case: Case, fails: Callable[[Case], bool], attempts: int = ATTEMPTS) -> Case:
    """Return a smaller case for which `fails` is still true.

    Parameters
    ----------
    case
        One that fails.
    fails
        Whether a case fails in the same way.
    attempts
        How many cases are tried at most.
    """
    for simpler in (replace(case, scheduler="sync"), replace(case, config={})):
        if simpler != case and fails(simpler):
            case = simpler
    left = attempts
    position = 0
    while left > 0:
        found = list(_smaller(case.source, position))
        if not found:
            return case
        for position, source in found:  # noqa: B007  (where the next round goes on)
            left -= 1
            if left <= 0:
                return case
            smaller = replace(case, source=source)
            if fails(smaller):
                case = smaller
                break
        else:
            return case
    return case


def _smaller(source: str, start: int) -> Iterator[tuple[int, str]]:
    """Yield each source with one change that makes it smaller, from change number `start` on."""
    tree = ast.parse(source)
    count = sum(1 for _ in _changes(tree))
    order = [*range(start, count), *range(min(start, count))]
    for wanted in order:
        changed = copy.deepcopy(tree)
        for number, apply in enumerate(_changes(changed)):
            if number == wanted:
                apply()
                break
        try:
            text = ast.unparse(ast.fix_missing_locations(changed))
        except (ValueError, AttributeError):
            continue
        yield wanted, text


def _changes(tree: ast.Module) -> Iterator[Callable[[], object]]:
    """Yield what can be done to a tree, in a fixed order: large parts first."""
    inputs = {id(n) for each in tree.body if _makes_inputs(each) for n in ast.walk(each)}
    nodes = [node for node in ast.walk(tree) if id(node) not in inputs]
    for node in nodes:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield from _statements(body)
    for node in nodes:
        if not _reads_data(node):
            yield from _expressions(node)


def _statements(body: list[ast.stmt]) -> Iterator[Callable[[], object]]:
    for k, statement in enumerate(body):
        name = getattr(statement, "name", None) or _assigned(statement)
        if name in KEPT or isinstance(statement, ast.Import | ast.Pass):
            continue
        yield lambda k=k: body.__setitem__(k, ast.Pass()) if len(body) == 1 else body.pop(k)
        inner = getattr(statement, "body", None)
        if isinstance(inner, list) and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield lambda k=k, inner=inner: body.__setitem__(slice(k, k + 1), inner)


def _assigned(statement: ast.stmt) -> str:
    """Return the name that an assignment defines."""
    return getattr(statement.targets[0], "id", "") if isinstance(statement, ast.Assign) else ""


def _makes_inputs(statement: ast.stmt) -> bool:
    return (getattr(statement, "name", None) or _assigned(statement)) in INPUTS


def _reads_data(node: ast.AST) -> bool:
    """Return whether a node makes an array of the inputs."""
    value = getattr(node, "value", node)
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "da.from_array"


def _expressions(node: ast.AST) -> Iterator[Callable[[], object]]:
    """Yield replacements of a node's expressions by parts of them."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            for part in _parts(value):
                yield lambda name=name, part=part: setattr(node, name, part)
        elif isinstance(value, list):
            for k, item in enumerate(value):
                if isinstance(item, ast.expr):
                    for part in _parts(item):
                        yield lambda value=value, k=k, part=part: value.__setitem__(k, part)


def _parts(value: ast.expr) -> list[ast.expr]:
    """Return the expressions inside one that may stand for it."""
    if isinstance(value, ast.BinOp):
        return [value.left, value.right]
    if isinstance(value, ast.UnaryOp):
        return [value.operand]
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.Call):
        method = [value.func.value] if isinstance(value.func, ast.Attribute) else []
        return [part for part in (*method, *value.args) if not isinstance(part, ast.Starred)]
    if isinstance(value, ast.Subscript):
        return [value.value]
    if isinstance(value, ast.Compare):
        return [value.left]
    return []
