"""Kernels in notebooks: the function as it was written."""

from __future__ import annotations

import inspect
from html import escape
from textwrap import dedent
from typing import Any


class Shown:
    """What notebooks show with its source, which is that of ``__wrapped__``."""

    def _repr_html_(self) -> str:
        return html(repr(self), getattr(self, "__wrapped__", None))


def html(title: str, function: Any) -> str:
    """Return a function's source, folded under a title; the title alone where there is none.

    Parameters
    ----------
    title
        What is shown of it in any case.
    function
        As it was written.

    Examples
    --------
    >>> from gpusched.kernels.shown import html
    >>> html("<kernel f>", None)
    '<code>&lt;kernel f&gt;</code>'
    """
    told = f"<code>{escape(title)}</code>"
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        # Typed into a plain interpreter, or received from another process.
        return told
    return (
        f"<details open><summary>{told}</summary>"
        f'<pre style="margin: 4px 0 0 1.2em">{escape(source)}</pre></details>'
    )
