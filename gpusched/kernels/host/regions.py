"""Statements with barriers among them -> regions that each thread runs from end to end.

What is known as loop fission over the threads of a block (J. A. Stratton, S. S. Stone and W. W.
Hwu, "MCUDA: an efficient implementation of CUDA kernels for multi-core CPUs", 2008; P. Jääskeläinen
and others, "pocl: a performance-portable OpenCL implementation", 2015): all threads run one region
before any runs the next.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpusched.dataclass import dataclass
from gpusched.emit.parsing import parse, parse_expression
from gpusched.kernels.errors import NotCompiledError
from gpusched.kernels.host.lowering import Barrier


@dataclass
class Region:
    """Statements without a barrier."""

    statements: list[ast.stmt]


@dataclass
class Meeting:
    """A barrier."""

    line: int


@dataclass
class Loop:
    """Repeated by each thread while a test holds for it."""

    test: ast.expr
    body: list[Part]


@dataclass
class Branch:
    """Two ways: some threads take one, and some the other."""

    test: ast.expr
    body: list[Part]
    orelse: list[Part]


Part = Region | Meeting | Loop | Branch


def split(statements: list[ast.stmt], suffix: str, depth: int = 0) -> list[Part]:
    """Return the parts between barriers.

    Parameters
    ----------
    statements
        Of a kernel without `numba.cuda`.
    suffix
        What is put behind each name of ours.
    depth
        Number of counted loops around them, each with a counter, which may count the same name.

    Raises
    ------
    NotCompiledError
        If a barrier is where it is not known which threads reach it.

    Examples
    --------
    >>> import ast
    >>> from gpusched.kernels.host.regions import split
    >>> from gpusched.kernels.host.lowering import Barrier
    >>> [first] = ast.parse("x = 1").body
    >>> [type(part).__name__ for part in split([first, Barrier(lineno=2), first, first], "")]
    ['Region', 'Meeting', 'Region']
    """
    parts: list[Part] = []
    open_: list[ast.stmt] = []
    for statement in statements:
        if not _barriers(statement):
            open_.append(statement)
            continue
        if open_:
            parts.append(Region(open_))
            open_ = []
        if isinstance(statement, Barrier):
            parts.append(Meeting(statement.lineno))
        else:
            parts += _compound(statement, suffix, depth)
    return [*parts, Region(open_)] if open_ else parts


def _barriers(node: ast.AST) -> bool:
    return any(isinstance(inner, Barrier) for inner in ast.walk(node))


def _compound(statement: ast.stmt, suffix: str, depth: int) -> list[Part]:
    """Return the parts of a statement that has a barrier inside."""
    if isinstance(statement, ast.If):
        ways = (split(way, suffix, depth) for way in (statement.body, statement.orelse))
        return [Branch(statement.test, *ways)]
    if isinstance(statement, ast.While | ast.For):
        if statement.orelse or any(_leaves(inner) for inner in statement.body):
            raise NotCompiledError("a loop around a barrier has a break, continue or else")
        if isinstance(statement, ast.While):
            return [Loop(statement.test, split(statement.body, suffix, depth))]
        return _counted(statement, suffix, depth)
    raise NotCompiledError(f"a barrier is inside of a {type(statement).__name__} statement")


def _leaves(statement: ast.stmt) -> bool:
    """Return whether a statement may leave the loop around it."""
    if isinstance(statement, ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.While | ast.For):
        return any(map(_leaves, statement.orelse))
    inner = (s for s in ast.iter_child_nodes(statement) if isinstance(s, ast.stmt))
    return any(map(_leaves, inner))


def _counted(statement: ast.For, suffix: str, depth: int) -> list[Part]:
    """Return a loop over a range as one with a test: each thread has a counter of its own."""
    match statement:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Name(id="range"), args=[_, *_] as args, keywords=[]),
        ) if len(args) <= 3:
            pass
        case _:
            raise NotCompiledError("a loop around a barrier is over something else than a range")
    start, stop, step = {1: ("0", 0, "1"), 2: (0, 1, "1"), 3: (0, 1, 2)}[len(args)]
    given = [ast.unparse(args[k]) if isinstance(k, int) else k for k in (start, stop, step)]
    at, end, by = (f"{word}_{depth}_{name}{suffix}" for word in ("next", "end", "step"))
    before = parse(f"{at} = int({given[0]})\n{end} = int({given[1]})\n{by} = int({given[2]})")
    again = parse_expression(f"{at} < {end} and {by} > 0 or ({at} > {end} and {by} < 0)")
    each = parse(f"{name} = {at}\n{at} += {by}").body
    body = split([*each, *statement.body], suffix, depth + 1)
    return [Region(before.body), Loop(again, body)]


def regions(parts: list[Part]) -> Iterator[Region]:
    """Yield the regions inside, in order."""
    for part in parts:
        if isinstance(part, Region):
            yield part
        elif isinstance(part, Loop):
            yield from regions(part.body)
        elif isinstance(part, Branch):
            yield from regions(part.body)
            yield from regions(part.orelse)


def tests(parts: list[Part]) -> Iterator[ast.expr]:
    """Yield the tests inside, in order."""
    for part in parts:
        if isinstance(part, Loop | Branch):
            yield part.test
            yield from tests(part.body)
        if isinstance(part, Branch):
            yield from tests(part.orelse)


def check_returns(parts: list[Part]) -> None:
    """Raise `NotCompiledError` for a return that others may wait for at a barrier."""
    last = parts[-1] if parts and isinstance(parts[-1], Region) else None
    for region in regions(parts):
        if region is not last and any(
            isinstance(n, ast.Return) for s in region.statements for n in ast.walk(s)
        ):
            raise NotCompiledError("a thread may return before a barrier")


def stored(nodes: list[ast.stmt]) -> set[str]:
    """Return the names that statements assign to."""
    return {n.id for s in nodes for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip


def mentioned(node: ast.AST | list[ast.stmt]) -> set[str]:
    """Return the names in a piece of a tree."""
    every = node if isinstance(node, list) else [node]
    return {n.id for piece in every for n in ast.walk(piece) if isinstance(n, ast.Name)}
