"""Imports run one way, lower layers knowing nothing of those above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_USE = {
    "adapters": {"installing"},
    "breaks": set(),
    "config": set(),
    "cudadriver": set(),
    "events": {"roles"},
    "files": set(),
    "installing": set(),
    "jupyter": set(),
    "logs": {"adapters"},
    "nvtx_ranges": set(),
    "orphans": set(),
    "placed": set(),
    "quantities": set(),
    "rendering": set(),
    "roles": {"adapters"},
    "vectormath": {"adapters"},
    "emit": {"config"},
    "serialization": {"adapters", "config", "events", "nvtx_ranges", "placed"},
    "setting_origins": {"config"},
    "threadsafe": {"config", "events", "orphans"},
    "settings": {"config", "quantities", "setting_origins"},
    "store": {"breaks", "config", "emit", "events", "files"},
    "backends": {
        "adapters",
        "config",
        "cudadriver",
        "emit",
        "installing",
        "nvtx_ranges",
        "quantities",
        "store",
        "vectormath",
    },
    "machine": {"backends", "emit", "store"},
    "plan": {"backends", "breaks", "config", "emit", "events", "quantities", "store"},
    "chunking": {"config", "machine", "roles"},
    "editing": {"backends", "emit", "plan"},
    "record": {"adapters", "backends", "breaks", "emit", "plan", "store"},
    "graph": {
        "adapters",
        "backends",
        "breaks",
        "chunking",
        "config",
        "emit",
        "events",
        "kernels",
        "placed",
        "plan",
        "quantities",
        "record",
        "roles",
        "store",
    },
    "kernels": {
        "adapters",
        "backends",
        "breaks",
        "emit",
        "plan",
        "record",
        "rendering",
        "store",
        "vectormath",
    },
    "inspection": {
        "adapters",
        "backends",
        "breaks",
        "chunking",
        "config",
        "editing",
        "emit",
        "graph",
        "machine",
        "placed",
        "plan",
        "record",
        "rendering",
        "roles",
        "store",
        "threadsafe",
        "vectormath",
    },
    "models": {"adapters", "graph", "placed", "record", "roles", "threadsafe"},
    "ops": {"kernels"},
    "saving": {
        "adapters",
        "config",
        "emit",
        "files",
        "graph",
        "inspection",
        "serialization",
        "store",
    },
    "workers": {
        "adapters",
        "config",
        "cudadriver",
        "events",
        "graph",
        "installing",
        "logs",
        "nvtx_ranges",
        "orphans",
        "placed",
        "plan",
        "quantities",
        "serialization",
        "store",
        "threadsafe",
    },
    "debugging": {
        "adapters",
        "backends",
        "emit",
        "graph",
        "inspection",
        "plan",
        "record",
        "rendering",
        "store",
    },
    "profiling": {"adapters", "config", "events", "inspection", "machine", "rendering", "roles"},
    "tuning": {
        "backends",
        "config",
        "editing",
        "emit",
        "inspection",
        "kernels",
        "plan",
        "record",
        "rendering",
        "store",
    },
    "dashboard": {"adapters", "backends", "breaks", "graph", "inspection", "profiling", "workers"},
    "cluster": {
        "adapters",
        "config",
        "dashboard",
        "files",
        "graph",
        "installing",
        "logs",
        "quantities",
        "serialization",
        "settings",
        "store",
        "workers",
    },
    "jobs": {
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
    "cli": {
        "adapters",
        "jobs",
        "cluster",
        "config",
        "cudadriver",
        "files",
        "graph",
        "inspection",
        "installing",
        "profiling",
        "quantities",
        "rendering",
        "setting_origins",
        "settings",
        "store",
        "threadsafe",
        "workers",
    },
}
"""What each part of the package may import, besides itself."""

FOR_ALL = {"dataclass", "newest"}
"""What every part may import: these import nothing of the package, and are like Python's own."""

# Resolve public names on demand, or are entry points.
ENTRY_POINTS = {"__init__", "__main__"}


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each source file with the part of the package that it belongs to."""
    for path in sorted((ROOT / "gpusched").rglob("*.py")):
        yield path.relative_to(ROOT / "gpusched").parts[0].removesuffix(".py"), path
    for folder in ("workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield folder, path


def imported(path: Path) -> set[str]:
    """Return what a file imports at its top or inside functions, and what it imports of that."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    for node in waiting:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)
    return names


def imported_parts(path: Path) -> set[str]:
    """Return the parts of the package that a file imports, for checkers of types, too."""
    names = imported(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("gpusched.")}


SOURCES = list(dict.fromkeys(sources()))


@pytest.mark.parametrize(
    ("part", "path"), SOURCES, ids=[str(path.relative_to(ROOT)) for _, path in SOURCES]
)
def test_file_imports_only_lower_layers(part: str, path: Path) -> None:
    if part in ENTRY_POINTS:
        return
    if part in FOR_ALL:
        assert not imported_parts(path)
        return
    assert part in MAY_USE, f"{part} is not a known part: say in MAY_USE what it may import"
    above = imported_parts(path) - MAY_USE[part] - FOR_ALL - {part, "__version__"}
    assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}"


def test_layers_have_no_cycle() -> None:
    TopologicalSorter(MAY_USE).prepare()


def test_modules_have_no_cycle() -> None:
    """Nor do they inside functions, which would only hide it."""
    names = {path: path.relative_to(ROOT).with_suffix("").parts for _, path in SOURCES}
    modules = {
        ".".join(parts if parts[0] == "gpusched" else ("gpusched", *parts)): path
        for path, parts in names.items()
        if parts[-1] not in ENTRY_POINTS
    }
    uses = {
        name: {m for i in imported(path) for m in (i, i.rpartition(".")[0]) if m in modules}
        for name, path in modules.items()
    }
    TopologicalSorter({name: used - {name} for name, used in uses.items()}).prepare()


def test_checker_sees_imports_inside_functions(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text("def f():\n    from gpusched.cli import run\n    import gpusched.graph.hook\n")
    assert imported_parts(file) == {"cli", "graph"}


@pytest.mark.parametrize(
    "part", ["graph", "record", "plan", "emit", "backends", "store", "kernels", "editing"]
)
def test_packages_name_their_modules_in_the_order_of_calls(part: str) -> None:
    folder = ROOT / "gpusched" / part
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"} | packages
    assert sorted(name for name in modules if f"`{name}`" not in told) == []
