"""Imports run one way, lower layers knowing nothing of those above."""

from __future__ import annotations

import ast
import re
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
    "jupyter": {"files"},
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
    "chunking": {"config", "quantities", "roles", "store"},
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
        "settings",
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
        "events",
        "graph",
        "machine",
        "placed",
        "plan",
        "quantities",
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
        "backends",
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
        "breaks",
        "emit",
        "graph",
        "inspection",
        "plan",
        "quantities",
        "record",
        "rendering",
        "store",
    },
    "profiling": {
        "adapters",
        "config",
        "events",
        "files",
        "inspection",
        "machine",
        "quantities",
        "rendering",
        "roles",
        "settings",
    },
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
    "dashboard": {
        "adapters",
        "backends",
        "breaks",
        "graph",
        "inspection",
        "profiling",
        "quantities",
        "workers",
    },
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
        "breaks",
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

FOR_ALL = {"dataclass", "forks", "newest"}
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

GRAPH = {
    "subgraph": set[str](),
    "functions": {"subgraph"},
    "safety": {"functions"},
    "frontends": {"functions"},
    "running": {"functions", "safety", "subgraph"},
    "placement": {"functions", "running"},
    "programs": {"functions", "placement", "running", "safety", "subgraph"},
    "passes": {"frontends", "functions", "programs", "running", "subgraph"},
}
"""What the folders of graph/ may use of each other; its other modules put them together."""


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


@pytest.mark.parametrize("name", GRAPH)
def test_folders_of_the_graph_use_lower_ones(name: str) -> None:
    folder = ROOT / "gpusched/graph"
    found = set()
    for path in (folder / name).rglob("*.py") if name != "subgraph" else [folder / "subgraph.py"]:
        names = [each.split(".") for each in imported(path)]
        found |= {part[2] for part in names if part[:2] == ["gpusched", "graph"] and part[2:]}
    assert found - {name} == GRAPH[name]


def test_layers_have_no_cycle() -> None:
    TopologicalSorter(MAY_USE).prepare()
    TopologicalSorter(GRAPH).prepare()


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


FOLDERS = ["graph", "record", "plan", "emit", "backends", "store", "kernels", "editing"]


@pytest.mark.parametrize("part", [*FOLDERS, *(f"graph/{name}" for name in [*GRAPH][-4:])])
def test_packages_name_their_modules_in_the_order_of_calls(part: str) -> None:
    folder = ROOT / "gpusched" / part
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"} | packages
    assert sorted(name for name in modules if f"`{name}`" not in told) == []


def private_state(*nodes: ast.AST) -> set[str]:
    """Return the private names that classes define, or keep in their objects."""
    inside = [n for node in nodes for n in ast.walk(node)]
    found = {n.name for n in inside if isinstance(n, ast.FunctionDef)}
    found |= {
        n.attr
        for n in inside
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and ast.unparse(n.value) == "self"
    }
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def touched(source: str, names: set[str]) -> set[str]:
    """Return which private names of recorders and lazy chunks a file touches.

    Those of its own classes are its own, but for classes that derive from recorders.
    """
    if not re.search(rf"\b(?:{'|'.join(names)})\b", source):
        return set()
    tree = ast.parse(source)
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    derived = [n for n in classes if any("Recorder" in ast.unparse(b) for b in n.bases)]
    foreign = names - private_state(*[n for n in classes if n not in derived])
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return foreign & (used | private_state(*derived))


def recording_state() -> set[str]:
    """Return what lazy chunks and recorders keep to themselves."""
    folder = ROOT / "gpusched/record"
    trees = [ast.parse((folder / name).read_text()) for name in ("chunk.py", "record.py")]
    classes = [n for tree in trees for n in tree.body if isinstance(n, ast.ClassDef)]
    return private_state(*[n for n in classes if n.name in ("LazyChunk", "Recorder")])


def test_only_record_touches_what_recorders_keep() -> None:
    """Nor do classes that derive from recorders: what they need has a public name."""
    names = recording_state()
    found = {str(p): touched(p.read_text(), names) for part, p in SOURCES if part != "record"}
    assert {path: used for path, used in found.items() if used} == {}


def test_checker_sees_private_state_of_recorders() -> None:
    names = recording_state()
    assert {"_node", "_recorder", "_nodes", "_runnable"} <= names
    assert touched("def f(chunk):\n    return chunk._node\n", names) == {"_node"}
    assert touched("class A(Recorder):\n    def _runnable(self): ...\n", names) == {"_runnable"}
    assert not touched("class A:\n    def _runnable(self): self._runnable()\n", names)


def looked_up(source: str) -> list[str]:
    """Return what a file asks `sys.modules` for by a name of the package's."""
    calls = [
        ast.unparse(n)
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Call | ast.Subscript)
    ]
    return [each for each in calls if re.match(r"sys\.modules(\.get\(|\[)'gpusched", each)]


def test_modules_of_the_package_are_imported_not_looked_up() -> None:
    """Whether another library is there may be asked by its name: it need not be installed."""
    found = {str(p): looked_up(p.read_text()) for _, p in SOURCES if "sys.modules" in p.read_text()}
    assert {path: names for path, names in found.items() if names} == {}
    assert looked_up("sys.modules.get('gpusched.graph')") and looked_up("sys.modules['gpusched']")
    assert not looked_up("sys.modules.get('cupy')")
