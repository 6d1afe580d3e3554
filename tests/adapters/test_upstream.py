"""Private names of dask and distributed are where the adapters look for them.

Each failure names what has moved and the line that uses it: `make upstream test`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.ir
import numba.core.bytecode
import numba.core.compiler
import numba.core.dispatcher
import numba.np.ufunc.dufunc
import pytest
from dask.utils import Dispatch
from distributed import Client, Scheduler, Worker
from distributed.cli import dask_worker
from distributed.comm.tcp import TCPListener
from distributed.core import Server
from distributed.http.scheduler.prometheus.core import PrometheusHandler
from distributed.node import ServerNode
from distributed.worker_memory import NannyMemoryManager, WorkerMemoryManager
from numba.core.codegen import CodeLibrary, CPUCodegen, CPUCodeLibrary, JITCPUCodegen

from gpusched.adapters import arrays, tasks
from tests.test_private_names import ADAPTERS, LIBRARIES, PYTHONS, ROOT, is_private

FILES = ("distributed", "flox", "numba", "tasks", "xarray")
"""The files with private attributes of what another library has made."""


def importable(name: str) -> Any:
    """Return a module; None if its library is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


OWNERS: dict[str, Any] = {
    "Client": Client,
    "ProhibitReuse": tasks.ProhibitReuse,
    "Scheduler": Scheduler,
    "Worker": Worker,
    "_signals": importlib.import_module("distributed._signals"),
    "aggregations": importable("flox.aggregations"),
    "client": Client,
    "dask_worker": dask_worker,
    "dispatch": Dispatch,
    "flox_core": importable("flox.core"),
    "flox_dask": importable("flox.dask"),
    "handler": PrometheusHandler,
    "listener": TCPListener,
    "missing": importable("xarray.core.missing"),
    "library": (CodeLibrary, CPUCodeLibrary),
    "library._codegen": (CPUCodegen, JITCPUCodegen),
    "super()": numba.core.compiler.CompilerBase,
    "dispatcher": numba.core.dispatcher.Dispatcher,
    "value": llvmlite.ir.Function,
    "cuda_library": getattr(importable("numba.cuda.codegen"), "CUDACodeLibrary", None),
    "ufunc": numba.np.ufunc.dufunc.DUFunc,
    "bytecode": numba.core.bytecode,
    "memory_manager": (WorkerMemoryManager, NannyMemoryManager),
    "server": (Server, ServerNode),
}
"""What the names that these files give to objects stand for; None for what is not installed."""

PARAMETERS: dict[Callable[..., Any], list[str]] = {
    Client._gather: ["self", "futures", "errors", "direct", "local_worker"],
    Client._gather_remote: ["self", "direct", "local_worker"],
    Client._run: ["self", "function", "args", "nanny", "workers", "wait", "on_error", "kwargs"],
    WorkerMemoryManager._maybe_pause_or_unpause: ["self", "worker", "memory"],
    dask_worker._apportion_ports: ["worker_port", "nanny_port", "n_workers", "nanny"],
}
"""Parameters of private functions that are called, or replaced by functions that take the same."""


def adapters() -> Iterator[tuple[str, ast.Module]]:
    for place in ADAPTERS:
        paths = sorted((ROOT / place).glob("*.py")) if place.endswith("/") else [ROOT / place]
        for path in paths:
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imported() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the module and the name of each import from the libraries."""
    for file, tree in adapters():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if node.module.partition(".")[0] in LIBRARIES:
                        yield f"{file}:{node.lineno}", node.module, alias.name


def attributes() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the owner and the name of each private attribute in `FILES`."""
    for path in (f"gpusched/adapters/{name}.py" for name in FILES):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if not isinstance(node, ast.Attribute) or node.attr in PYTHONS:
                continue
            if is_private(node.attr):
                yield f"{path}:{node.lineno}", ast.unparse(node.value), node.attr


IMPORTED = sorted({(module, name): where for where, module, name in imported()}.items())
ATTRIBUTES = sorted({(owner, name): where for where, owner, name in attributes()}.items())


def has(kind: Any, name: str) -> bool:
    """Return whether a module or class has an attribute, or its methods make one."""
    return hasattr(kind, name) or f"self.{name}" in inspect.getsource(kind)


@pytest.mark.parametrize(("names", "where"), IMPORTED, ids=[".".join(k) for k, _ in IMPORTED])
def test_imported_names_are_where_they_were(names: tuple[str, str], where: str) -> None:
    module, name = names
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        pytest.fail(f"{module} has moved upstream ({error}); {where} uses it")
    if not hasattr(found, name):
        try:
            importlib.import_module(f"{module}.{name}")
        except ImportError:
            pytest.fail(f"{module}.{name} has moved upstream; {where} uses it")


@pytest.mark.parametrize(("names", "where"), ATTRIBUTES, ids=[".".join(k) for k, _ in ATTRIBUTES])
def test_private_attributes_are_where_they_were(names: tuple[str, str], where: str) -> None:
    owner, name = names
    assert owner in OWNERS, f"{where}: say in OWNERS what {owner} is"
    kinds = OWNERS[owner] if isinstance(OWNERS[owner], tuple) else (OWNERS[owner],)
    if None in kinds:
        pytest.skip(f"{owner} is not installed")
    assert any(has(kind, name) for kind in kinds), f"{names} has moved upstream; {where} uses it"


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__qualname__)
def test_private_functions_take_what_they_took(function: Callable[..., Any]) -> None:
    found = list(inspect.signature(function).parameters)
    assert found == PARAMETERS[function], f"{function.__qualname__} has changed upstream"


def test_every_private_name_of_the_adapters_is_checked() -> None:
    checked = {name for (_, name), _ in ATTRIBUTES} | {name for (_, name), _ in IMPORTED}
    parts = {part for (module, _), _ in IMPORTED for part in module.split(".")}
    for file, tree in adapters():
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        missing = {name for name in used - PYTHONS if is_private(name)} - checked - parts - own
        # Of expressions and of dask-array, which tests/frontends/test_adapter.py makes some of.
        windows = "_sliding_window_reduce_block", "_sliding_window_nan_skip_reduce_block"
        assert missing <= {"_layer", "_parameters", *windows}, f"{file}: {missing}"


def test_adapters_export_what_they_name() -> None:
    for adapter in (arrays, tasks):
        assert sorted(adapter.__all__) == adapter.__all__
        assert all(hasattr(adapter, name) for name in adapter.__all__)
