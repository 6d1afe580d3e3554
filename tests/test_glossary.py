"""Words of the glossary's "not" column are in no page, message or docstring.

What a word alone decides is a pattern here; the rest is for reviewers.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

UNITS = "second|byte|element|kernel|launch|GPU|worker|task|chunk|process"
PATTERNS = {
    "per": rf"\b(?:one (?!on|of|in|for)\w+|a (?:bar|file|row)) an? (?:{UNITS}|file|step)\b|"
    r"(?:\d (?:ns|us|ms|s|[kMGT]?i?B(?:/s)?)|\b(?:bytes|operations|microseconds?|seconds)) an? "
    rf"(?:{UNITS})\b(?! (?:should|must|is|can|takes?|needs?)\b)",
    "reports": r"(?<!@)\b(?:told|tells?|telling)\b",
    "graph break": r"\bfusion (?:stops|stopped|halts)|\bobstacles?\b|\bhalts?\b",
    "is not a": r"(?<!here )\b(?:is|are) no (?:array|text|kernel|number|model|policy|file)\b",
    "string": r"\ba text\b",
    "tile": r"\bslabs?\b",
    "halo": r"\bseams?\b",
    "scalar function": r"\bfunctions? of numbers\b|\bpoint functions?\b",
    "MIG-enabled GPU": r"\bdivided GPUs?\b",
    "set up": r"\bfitted out\b|\bdeaf\b|\bbefell\b|\bobituar",
    "copy to host": r"\bthaw",
    "sticky CUDA error": r"\bpoisoned\b",
    "baseline": r"\bcontenders\b(?! )|\btriad's\b",
    "bug": r"(?<!egmentation )(?<!Jacksboro )(?<!page )(?<!tests/)\bfaults?\b",
    "again, forever, must, fix, rarely, instead of": r"\banew\b|\bfor ever\b|\bshall\b"
    r"|\bmend(?:s|ed)?\b|\bseldom\b|\bin the place of\b",
    "queueing system, job": r"\bbatch (?:systems?|jobs?)\b",
    "is": r"\b(?:lies|lie)\b(?! to\b)",
}
"""Patterns of what is not to be written, by what is to be written."""

PAGES = ("*.md", "docs/**/*.md", "docs/**/*.svg", "deploy/**/*.md", ".github/**/*.md")
CODE = re.compile(r"``[^`]+``|`[^`]+`")
"""Names in the code, whatever words they are made of."""


def prose() -> Iterator[tuple[str, str]]:
    """Yield each line of pages, settings, notebooks, messages and docstrings, with its place."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if "_build" not in path.parts:
                yield from _lines(path, path.read_text())
    settings = ROOT / "gpusched/gpusched.yaml"
    yield from _lines(settings, settings.read_text())
    for path in sorted((ROOT / "docs/examples").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            yield from _lines(path, "".join(cell["source"]))
    for folder in ("gpusched", "workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from _strings(path)


def _lines(path: Path, text: str, first: int = 1) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), first):
        if not line.lstrip().startswith((">>>", "...")):
            yield f"{path.relative_to(ROOT)}:{number}", CODE.sub("", line)


def _strings(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from _lines(path, node.value, node.lineno)


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str]]:
    return list(prose())


@pytest.mark.parametrize("instead", PATTERNS)
def test_glossary(lines: list[tuple[str, str]], instead: str) -> None:
    pattern = re.compile(PATTERNS[instead], re.IGNORECASE)
    found = [f"{where}: {line.strip()[:120]}" for where, line in lines if pattern.search(line)]
    assert not found, f"write {instead!r}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("instead", "text"),
    [
        ("per", "it takes 7 us a task"),
        ("per", "4.97 GB/s a launch"),
        ("reports", "what is told of one value"),
        ("graph break", "where fusion stops"),
        ("is", "results lie on the GPU"),
        ("again, forever, must, fix, rarely, instead of", "it is made anew"),
        ("bug", "a fault of the worker"),
        ("queueing system, job", "the nodes of a batch system"),
    ],
)
def test_patterns_find_what_the_glossary_names(instead: str, text: str) -> None:
    assert re.search(PATTERNS[instead], text, re.IGNORECASE)
