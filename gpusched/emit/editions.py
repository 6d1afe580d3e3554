"""A user's source text of a kernel: what of it each target takes."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from gpusched.emit.generate import helper_source
from gpusched.emit.kernel import Edition
from gpusched.emit.parsing import parse


class EditionError(ValueError):
    """A user's version of a kernel cannot be used; the message has the place and the remedy."""


def functions(text: str, filename: str = "<edited>") -> dict[str, ast.FunctionDef]:
    r"""Return the functions that a source defines, by name.

    Raises
    ------
    EditionError
        If it is no Python; the message has the line.

    Examples
    --------
    >>> from gpusched.emit.editions import functions
    >>> list(functions("def point(a):\n    return a\n"))
    ['point']
    """
    try:
        tree = parse(text, filename)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise EditionError(f"{filename}:{error.lineno}: {error.msg}\n    {line}") from error
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def check_names(text: str, filename: str, known: Iterable[str]) -> None:
    """Raise `EditionError` for a name that nothing defines, with its line.

    Parameters
    ----------
    text
        Python source.
    filename
        For the message.
    known
        Names that the text may use without defining them, besides Python's own.
    """
    nodes = list(ast.walk(parse(text, filename)))
    defined = {*known, *dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.arg | ast.alias):
            name = getattr(node, "name", "") or getattr(node, "arg", "")
            defined.add(getattr(node, "asname", None) or name.partition(".")[0])
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in defined:
            line = text.splitlines()[node.lineno - 1].strip()
            raise EditionError(
                f"{filename}:{node.lineno}: name {node.id!r} is not defined\n    {line}"
            )


def has_loops(edition: Edition, target: str) -> bool:
    """Return whether a source has the loops of a target, so that none are generated."""
    return edition.target == target and "kernel" in functions(edition.text)


def with_loops(edition: Edition, target: str, loops: str) -> str:
    """Return the whole source for a target: the text, or its other functions and `loops`.

    The lines of what is taken from the text keep their numbers. Functions that the loops call and
    the text has not, since its own loops call others, come behind it.

    Raises
    ------
    EditionError
        If `point`, which the loops call, is not defined.
    """
    if has_loops(edition, target):
        return edition.text
    found = functions(edition.text)
    if "point" not in found:
        raise EditionError(
            f"the edited source defines no function point, which the loops for {target} call: "
            "keep it, and call it in kernel"
        )
    lines = edition.text.splitlines()
    own = found.get("kernel")
    if own is not None:
        assert own.end_lineno is not None
        lines[own.lineno - 1 : own.end_lineno] = [""] * (own.end_lineno - own.lineno + 1)
    kept = "\n".join(lines).rstrip()
    return f"{kept}\n\n\n{helper_source(loops, found)}{loops}\n"
