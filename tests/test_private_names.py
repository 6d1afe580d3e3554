"""Private names of dask and distributed are in `gpusched.adapters` only."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gpusched

ROOT = Path(__file__).parents[1]
LIBRARIES = ("dask", "distributed", "dask_array")
ADAPTERS = ("gpusched/adapters/", "gpusched/graph/frontends/adapter.py")

HOLDERS = {"client", "scheduler", "worker", "nanny", "manager", "cluster", "dask_scheduler",
           "dask_worker", "_scheduler", "_client", "_worker", "_manager"}  # fmt: skip
"""Names that objects of distributed go by in this package."""

EXCEPTIONS = {
    # A wrapper around a method that is the client's own: it must be found there again.
    "workers/border.py: client._gather",
}

OVERRIDDEN = {
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
    "gpusched.graph.frontends.fused.Fused._layer",
    "gpusched.graph.frontends.fused.Fused._parameters",
    "gpusched.graph.frontends.fused.FusedSequence._simplify_down",
    # A nanny is told of an exit code by these alone.
    "gpusched.workers.nanny.DeviceNanny._on_worker_exit",
    "gpusched.workers.nanny.DeviceNanny._on_worker_exit_sync",
    # The client that tasks get has no public constructor.
    "gpusched.workers.worker.DeviceWorker._get_client",
}
"""Private methods and attributes of dask's and distributed's classes that gpusched's override."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("gpusched", "workers", "serialization"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(ADAPTERS):
                yield name, ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield private names of the libraries: imported, or attributes of what is imported."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            found = {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
        else:
            continue
        imported |= {k: v for k, v in found.items() if v.partition(".")[0] in LIBRARIES}
    yield from (full for full in imported.values() if any(map(is_private, full.split("."))))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner.partition(".")[0] in imported or owner.rpartition(".")[2] in HOLDERS:
                yield f"{owner}.{node.attr}"


def test_no_private_name_is_used_outside_of_adapters() -> None:
    found = {f"{name}: {used}" for name, tree in sources() for used in private_names(tree)}
    assert not found - EXCEPTIONS
    assert found >= EXCEPTIONS, "an exception that is not needed any more"


def modules(package: ModuleType) -> Iterator[ModuleType]:
    programs = ("__main__", ".manager", ".child")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.endswith(programs):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "gpusched").partition(".")[0] in ("gpusched", *LIBRARIES):
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
    assert found == OVERRIDDEN, "distributed or dask have moved what is missing here"


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_overridden_private_methods_are_still_there(name: str) -> None:
    """The same without importing all modules, so that each upstream release is tested for it."""
    where, kind, _ = name.rsplit(".", 2)
    found = overridden(getattr(importlib.import_module(where), kind))
    assert name in set(found), f"{name} overrides nothing: its original has moved upstream"
