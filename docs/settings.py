"""The table of settings, made from gpusched.yaml: what is above a key says what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import gpusched

FILE = Path(gpusched.__file__).with_name("gpusched.yaml")


def settings(text: str) -> Iterator[tuple[str, str, str]]:
    r"""Give the key, default and meaning of each setting.

    Examples
    --------
    >>> list(settings("a:\n  # How many.\n  b: 3\n"))
    [('a.b', '3', 'How many.')]
    """
    path: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            said = [*said, stripped.lstrip("# ")] if stripped else []
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, value = stripped.partition(":")
        path = [*path[:depth], key]
        if value:
            yield ".".join(path), json.dumps(yaml.safe_load(value)), " ".join(said)
        said = []


class SettingsTable(SphinxDirective):
    """A table of all settings."""

    def run(self) -> list[nodes.Node]:
        """Return the table as nodes of the page."""
        rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
        rows += [f"| `{k}` | `{v}` | {said} |" for k, v, said in settings(FILE.read_text())]
        return self.parse_text_to_nodes("\n".join(rows))


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of the directive."""
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
