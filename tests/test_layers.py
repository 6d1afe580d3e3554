"""Imports run one way, lower layers knowing nothing of those above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_USE = {
    "adapters": set(),
    "config": set(),
    "breaks": set(),
    "installing": set(),
    "quantities": set(),
    "settings": {"config", "quantities", "setting_origins"},
    "events": set(),
    "files": set(),
    "orphans": set(),
    "placed": set(),
    "setting_origins": {"config"},
    "serialization": {"adapters", "config", "events", "placed"},
    "fusion": {"breaks", "config", "events", "files", "installing"},
    "kernels": {"breaks", "config", "fusion"},
    "machine": {"config", "fusion"},
    "chunking": {"config", "fusion", "machine"},
    "graph": {"adapters", "breaks", "chunking", "config", "events", "fusion", "placed"},
    "saving": {"adapters", "config", "fusion", "graph", "serialization"},
    "inspection": {
        "adapters",
        "breaks",
        "chunking",
        "config",
        "fusion",
        "graph",
        "machine",
        "placed",
        "threadsafe",
    },
    "debugging": {"adapters", "config", "fusion", "graph", "inspection"},
    "tuning": {"config", "fusion", "graph", "inspection", "kernels"},
    "threadsafe": {"config", "events", "orphans"},
    "ops": {"config", "fusion", "kernels"},
    "models": {"adapters", "config", "fusion", "graph", "serialization", "threadsafe"},
    "workers": {
        "adapters",
        "config",
        "events",
        "fusion",
        "graph",
        "installing",
        "orphans",
        "placed",
        "serialization",
        "threadsafe",
    },
    "batch": {
        "adapters",
        "cluster",
        "config",
        "files",
        "orphans",
        "quantities",
        "saving",
        "serialization",
        "workers",
    },
    "cluster": {
        "adapters",
        "config",
        "dashboard",
        "files",
        "fusion",
        "graph",
        "installing",
        "quantities",
        "serialization",
        "settings",
        "workers",
    },
    "dashboard": {
        "adapters",
        "breaks",
        "config",
        "fusion",
        "graph",
        "inspection",
        "profiling",
        "workers",
    },
    "profiling": {
        "adapters",
        "config",
        "events",
        "setting_origins",
        "fusion",
        "graph",
        "inspection",
        "machine",
        "serialization",
        "threadsafe",
        "workers",
    },
    "jupyter": {"config", "inspection", "profiling"},
    "cli": {
        "adapters",
        "batch",
        "config",
        "installing",
        "quantities",
        "settings",
        "files",
        "setting_origins",
        "fusion",
        "graph",
        "inspection",
        "profiling",
        "serialization",
        "threadsafe",
        "workers",
        "cluster",
    },
}
"""What each part of the package may import, besides itself."""

# Resolve public names on demand, or are entry points.
ENTRY_POINTS = {"__init__", "__main__"}


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each source file with the part of the package that it belongs to."""
    for path in sorted((ROOT / "gpusched").rglob("*.py")):
        yield path.relative_to(ROOT / "gpusched").parts[0].removesuffix(".py"), path
    for folder in ("workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield folder, path


def imported_parts(path: Path) -> set[str]:
    """Return the parts of the package that a file imports, at its top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("gpusched.")}


SOURCES = list(dict.fromkeys(sources()))


@pytest.mark.parametrize(
    ("part", "path"), SOURCES, ids=[str(path.relative_to(ROOT)) for _, path in SOURCES]
)
def test_file_imports_only_lower_layers(part: str, path: Path) -> None:
    if part in ENTRY_POINTS:
        return
    assert part in MAY_USE, f"{part} is not a known part: say in MAY_USE what it may import"
    above = imported_parts(path) - MAY_USE[part] - {part, "__version__"}
    assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}"


def test_layers_have_no_cycle() -> None:
    remaining = {part: set(lower) for part, lower in MAY_USE.items()}
    while remaining:
        lowest = {part for part, lower in remaining.items() if not lower}
        assert lowest, f"a cycle among {sorted(remaining)}"
        remaining = {
            part: lower - lowest for part, lower in remaining.items() if part not in lowest
        }


def test_checker_sees_imports_inside_functions(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text("def f():\n    from gpusched.cli import run\n    import gpusched.graph.hook\n")
    assert imported_parts(file) == {"cli", "graph"}
