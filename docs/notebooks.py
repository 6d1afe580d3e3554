"""Pages of the example notebooks, with what their cells showed when they were run last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

_FENCE = "`" * 8
"""Longer than any in a notebook."""


def markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a notebook's page.

    Examples
    --------
    >>> list(markdown({"cells": [{"cell_type": "markdown", "source": ["# Title"]}]}))
    ['# Title']
    """
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"{_FENCE}ipython\n{source}\n{_FENCE}"
        for output in cell["outputs"]:
            yield _shown(output)


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return f"{_FENCE}{{raw}} html\n{''.join(data['text/html'])}\n{_FENCE}"
    text = "".join(output.get("text") or data["text/plain"])
    return f"{_FENCE}text\n{text.rstrip()}\n{_FENCE}"


class Notebook(SphinxDirective):
    """A notebook, as the text of a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the notebook as nodes of the page."""
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        parts = markdown(json.loads(Path(path).read_text()))
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)


def setup(app: Any) -> dict[str, Any]:
    """Add the directive to Sphinx."""
    app.add_directive("notebook", Notebook)
    return {"parallel_read_safe": True}
