"""Which modules of the user's own a computation is made of: dask's tokens have only their names."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpusched.adapters.tasks import DataNode, Task, TaskRef
from gpusched.saving.code import is_installed

_MAIN = ("__main__", "__mp_main__")
"""Modules whose functions dask's tokens have with their code."""
_PLAIN = frozenset([int, float, str, bytes, bool, slice, np.ndarray, types.NoneType, TaskRef])
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def digest(values: Iterable[Any]) -> str:
    """Return a digest of the files of the user's own modules that a graph's functions are from.

    With what those import when they are imported; empty if there are none. Installed packages
    are not looked at.

    Parameters
    ----------
    values
        Those of a dask graph: tasks, or anything else.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched.jobs.own_modules import digest
    >>> digest(da.ones(3).__dask_graph__().values())
    ''
    """
    found = dict[str, bytes]()
    seen = set(_MAIN)
    waiting = set(_named(values)) - seen
    while waiting:
        seen.add(name := waiting.pop())
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is None or file is None or is_installed(module):
            continue
        # Of an archive, too.
        read = getattr(module.__loader__, "get_data", None)
        found[name] = content = read(file) if read else Path(file).read_bytes()
        waiting |= {*_imported(content, module.__package__ or "")} - seen
    made = hashlib.blake2b(digest_size=16)
    for name, content in sorted(found.items()):
        made.update(f"{name} {len(content)} ".encode() + content)
    return made.hexdigest() if found else ""


def _named(values: Iterable[Any]) -> Iterator[str]:
    """Yield the names of the modules that functions and objects in a graph are from."""
    seen = dict[int, Any]()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is tuple:
            waiting += value
        elif kind is Task:
            waiting += (value.func, *value.args, *value.kwargs.values())
        elif kind not in _PLAIN and id(value) not in seen:
            seen[id(value)] = value
            yield from _modules(value)
            waiting += _within(value)


def _modules(value: Any) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        yield value.__name__
    else:
        yield type(value).__module__
        if callable(value):
            yield str(getattr(value, "__module__", ""))


def _within(value: Any) -> Iterable[Any]:
    """Return what a value holds that may be, or hold, a function."""
    match value:
        case Task():
            return [value.func, *value.args, *value.kwargs.values()]
        case DataNode():
            return [value.value]
        case dict():
            return list(value.values())
        case list() | tuple() | set() | frozenset():
            return list(value)
        case functools.partial():
            return [value.func, *value.args, *value.keywords.values()]
        case types.MethodType():
            return [value.__func__, value.__self__]
        case types.FunctionType():
            return _of_function(value)
    # Such as `np.vectorize`, and what numba makes of a function.
    return list(getattr(value, "__dict__", {}).values()) if callable(value) else []


def _of_function(function: types.FunctionType) -> list[Any]:
    found = [function.__defaults__, function.__kwdefaults__, vars(function)]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue  # Not filled yet.
    if function.__module__ in _MAIN:
        names = set(_names(function.__code__))
        used = [function.__globals__[name] for name in names & function.__globals__.keys()]
        found += used
        # As `np` of `np.sqrt`.
        modules = [vars(each) for each in used if isinstance(each, types.ModuleType)]
        found += [each[name] for each in modules for name in names & each.keys()]
    return found


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _imported(content: bytes, package: str) -> Iterator[str]:
    """Yield the modules that a module imports when it is imported itself, by their names."""
    try:
        waiting: list[ast.AST] = [ast.parse(content)]
    except (SyntaxError, ValueError):
        return  # Not Python's source, as of an extension module.
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(base, package) if node.level else base
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)
        elif not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
