"""Kernels in notebooks: the function as it was written."""

from __future__ import annotations

import inspect
from textwrap import dedent
from typing import Any

from gpusched.rendering.html import code, folded, fragment, listing


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
    >>> from gpusched.kernels.notebook import html
    >>> html("<kernel f>", None)
    Markup('<code>&lt;kernel f&gt;</code>')
    """
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        # Typed into a plain interpreter, or received from another process.
        return code(title)
    return fragment(folded(code(title), listing(source), unfolded=True))
