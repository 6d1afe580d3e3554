"""Python source: as syntax trees, made by one thread at a time, and shown by debuggers.

While it makes a tree, CPython counts how deep it is in one place for all threads. Its garbage
collector may let another thread in meanwhile, as it does on workers, where distributed watches it;
if that thread makes a tree, too, one of them gets a SystemError.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from typing import Any

from gpusched import forks

_turn = forks.lock()


def parse(text: str, filename: str = "<unknown>") -> ast.Module:
    """Return the tree of some statements, as `ast.parse` does.

    Parameters
    ----------
    text
        Python source.
    filename
        For the message of a SyntaxError.

    Examples
    --------
    >>> from gpusched.emit.parsing import parse
    >>> parse("a = 1").body[0].lineno
    1
    """
    with _turn:
        return ast.parse(text, filename)


def parse_expression(text: str) -> ast.expr:
    """Return the tree of an expression.

    Examples
    --------
    >>> import ast
    >>> from gpusched.emit.parsing import parse_expression
    >>> ast.unparse(parse_expression("a+ 1"))
    'a + 1'
    """
    with _turn:
        return ast.parse(text, mode="eval").body


def source_of(value: Any) -> str:
    """Return the source of a function or a class, as `inspect.getsource` does.

    It looks for classes in a tree of their module.
    """
    with _turn:
        return inspect.getsource(value)


def register(filename: str, text: str) -> str:
    """Let tracebacks and debuggers show source that is in no file; return its made-up name."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return filename
