"""Private names of other libraries are in `gpusched.adapters` only."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gpusched

ROOT = Path(__file__).parents[1]
LIBRARIES = ("dask", "distributed", "dask_array", "flox", "numba", "xarray")
NEEDED = ("dask", "distributed")
ADAPTERS = ("gpusched/adapters/", "gpusched/graph/frontends/adapter.py")

HOLDERS = {"client", "scheduler", "worker", "nanny", "manager", "cluster", "dask_scheduler",
           "dask_worker", "_scheduler", "_client", "_worker", "_manager"}  # fmt: skip
"""Names that objects of distributed go by in this package."""

MENTIONS = re.compile(
    rf"^\s*(?:from|import) (?:{'|'.join(LIBRARIES)})\b|\b(?:{'|'.join(HOLDERS)})\._", re.MULTILINE
)
"""What only files with private names of the libraries can have; others need not be parsed."""

EXCEPTIONS: set[str] = set()

OVERRIDDEN = {
    # What numba makes of a function that is part of others; the adapter overrides it.
    "gpusched.adapters.numba.Inlined._compile_core",
    # numba asks each of its types so whether error messages show it.
    "gpusched.backends.conversions.Float16._is_internal",
    # distributed has no hook for a worker that a cluster loses while its nanny starts it again.
    "gpusched.cluster.cluster.Cluster._update_worker_status",
    # Fusion is switched on before the workers start, and off after they have ended.
    "gpusched.cluster.cluster.Cluster._start",
    "gpusched.cluster.cluster.Cluster._close",
    # The thread that starts a worker's process gives it its signal mask.
    "gpusched.cluster.serve._BlockedSignalsProcess._start_threads",
    # Blockwise layers write themselves out, and there is one copy of what they hold.
    "gpusched.graph.direct.DirectBlockwise._cull",
    "gpusched.graph.direct.DirectBlockwise._dict",
    # Expressions are classes whose parameters and graphs have these names.
    "gpusched.graph.frontends.fused_expressions.Fused._layer",
    "gpusched.graph.frontends.fused_expressions.Fused._parameters",
    "gpusched.graph.frontends.fused_expressions.FusedSequence._simplify_down",
    # A nanny is told of an exit code by these alone.
    "gpusched.workers.nanny.DeviceNanny._on_worker_exit",
    "gpusched.workers.nanny.DeviceNanny._on_worker_exit_sync",
    # The client that tasks get has no public constructor.
    "gpusched.workers.worker.DeviceWorker._get_client",
}
"""Private methods and attributes of other libraries' classes that gpusched's override."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("gpusched", "workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(ADAPTERS):
                continue
            text = path.read_text()
            if MENTIONS.search(text):
                yield name, ast.parse(text)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield private names of the libraries: imported, or attributes of what is imported."""
    imported: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            found = {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
        else:
            continue
        imported |= {k: v for k, v in found.items() if v.partition(".")[0] in LIBRARIES}
    yield from (full for full in imported.values() if any(map(is_private, full.split("."))))
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            first, last = ends(node.value)
            if first in imported or last in HOLDERS:
                yield f"{ast.unparse(node.value)}.{node.attr}"


def ends(node: ast.expr) -> tuple[str, str]:
    """Return the first and the last name of an expression such as ``first.other(x).last``."""
    last = getattr(node, "attr", None) or getattr(node, "id", "")
    while not isinstance(node, ast.Name):
        inner = getattr(node, "value", None) or getattr(node, "func", None)
        if not isinstance(inner, ast.expr):
            return "", last
        node = inner
    return node.id, last


def test_no_private_name_is_used_outside_of_adapters() -> None:
    found = {f"{name}: {used}" for name, tree in sources() for used in private_names(tree)}
    assert not found - EXCEPTIONS
    assert found >= EXCEPTIONS, "an exception that is not needed any more"


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ("import dask\ndask.base._x", "dask.base._x"),
        ("import dask.array as da\nda.ones(3).blocks[0]._x", "da.ones(3).blocks[0]._x"),
        ("from distributed import _signals", "distributed._signals"),
        ("self.made().scheduler._x", "self.made().scheduler._x"),
        ("client._x", "client._x"),
        ("self._client\nother._x\n''._x\n[a][0]._x", None),
    ],
)
def test_private_names_are_found(used: str, found: str | None) -> None:
    assert list(private_names(ast.parse(used))) == ([found] if found else [])


PYTHONS = {"_current_frames", "_exit", "_getframe", "_fields", "_make", "_replace"}
"""Of Python's own modules and named tuples, which document them."""

OF_OTHERS = {
    # Every expression of dask's and of dask-array's has these: they are its protocol.
    "gpusched/graph/frontends/": {"_layer", "_meta", "_name"},
    # numba's documentation of extensions has no other way to a structure's value.
    "gpusched/backends/": {"_getvalue"},
    # What Python's own functions tell fields by: to have Python make them takes twice as long.
    "gpusched/dataclass.py": {"_field_type"},
    # NumPy's default of arguments, and its own names of what the public ones are made of.
    "gpusched/emit/operations.py": {"_core"},
    "gpusched/record/functions.py": {"_NoValue"},
    # torch has no other way to tell that a tensor was written to, or what runs on its gradient.
    "gpusched/models/torch.py": {"_version"},
    "serialization/arrays/torch.py": {"_backward_hooks"},
}
"""Private attributes of other libraries, by the place where they are used."""


def test_no_private_attribute_of_anybody_else_is_used() -> None:
    """Whatever an object is called, an attribute that nothing here defines is another library's."""
    used: dict[str, set[str]] = {}
    own = set(PYTHONS)
    for folder in ("gpusched", "workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    own.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    own.add(node.id)
                elif isinstance(node, ast.Attribute) and is_private(node.attr):
                    if ast.unparse(node.value) in ("self", "cls", "super()"):
                        own.add(node.attr)
                    elif not name.startswith(ADAPTERS):
                        used.setdefault(name, set()).add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    own.add(node.value)  # in __slots__
    found = {name: attributes - own for name, attributes in used.items() if attributes - own}
    allowed = {
        name: {a for place, theirs in OF_OTHERS.items() if name.startswith(place) for a in theirs}
        for name in found
    }
    assert {n: found[n] - allowed[n] for n in found if found[n] - allowed[n]} == {}


def modules(package: ModuleType) -> Iterator[ModuleType]:
    programs = ("__main__", ".manager", ".child")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.endswith(programs):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "gpusched").partition(".")[0] in ("gpusched", *NEEDED):
                raise


def overridden(kind: type) -> Iterator[str]:
    theirs = [base for base in kind.__mro__[1:] if base.__module__.split(".")[0] in LIBRARIES]
    for name in vars(kind):
        if is_private(name) and name != "_abc_impl" and any(name in vars(b) for b in theirs):
            yield f"{kind.__module__}.{kind.__qualname__}.{name}"


@pytest.mark.slow  # imports every module
def test_overridden_private_methods_are_those_of_the_table() -> None:
    found = {
        name
        for module in modules(gpusched)
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        for name in overridden(kind)
    }
    assert found == OVERRIDDEN, "other libraries have moved what is missing here"


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_overridden_private_methods_are_still_there(name: str) -> None:
    """The same without importing all modules, so that each upstream release is tested for it."""
    where, kind, _ = name.rsplit(".", 2)
    found = overridden(getattr(importlib.import_module(where), kind))
    assert name in set(found), f"{name} overrides nothing: its original has moved upstream"
