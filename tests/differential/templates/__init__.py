"""The templates that both generators fill in, from the text files beside this one."""

from __future__ import annotations

import re
from pathlib import Path

Statement = tuple[str, str]
"""A tag and its lines."""


def sections(name: str) -> dict[str, list[str]]:
    """Return the lines of a file by section, without comments and empty lines at their ends."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / f"{name}.txt").read_text().splitlines():
        if re.fullmatch(r"\[[a-z ]+\]", line):
            lines = found.setdefault(line.strip("[]"), [])
        elif found and not line.startswith("#"):
            lines.append(line)
    return found


def one_per_line(name: str) -> dict[str, tuple[str, ...]]:
    """Return the templates of a file with one per line, by section."""
    return {key: tuple(filter(None, lines)) for key, lines in sections(name).items()}


def tagged(name: str) -> dict[str, tuple[Statement, ...]]:
    """Return the statements of a file by section, each a tag and its lines."""
    found: dict[str, tuple[Statement, ...]] = {}
    for key, lines in sections(name).items():
        entries: list[tuple[str, list[str]]] = []
        for line in filter(None, lines):
            if line.startswith("    "):
                entries[-1][1].append(line[4:])
            else:
                entries.append((line.rstrip(":"), []))
        found[key] = tuple((tag, "\n".join(body)) for tag, body in entries)
    return found
