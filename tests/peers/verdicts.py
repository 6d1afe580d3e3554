"""A pytest plugin that counts the functions of a project's tests that are given lazy chunks.

``pytest -p tests.peers.fused -p tests.peers.verdicts --pyargs dask.array.tests.test_ufunc``

A function is counted once, under its file and line, and as fused if one of its calls is. Those of
a library's own tests are taken for a user's.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpusched.breaks import GraphBreak, Reason
from gpusched.graph.functions import libraries
from gpusched.graph.functions.partials import bare
from gpusched.graph.safety import check, examination

_found: dict[tuple[str, int, str], set[Reason | None]] = {}
"""By file, line and name, why a function was refused; None where it was not."""

UNCOUNTED = GraphBreak.LIBRARY, GraphBreak.NO_ARRAY
"""Why functions are none of a user's, or have nothing to fuse."""

_examined = examination.examined


def examined(function: Any, args: Iterable[Any], names: Mapping[str, Any]) -> examination.Verdict:
    """Do what `gpusched.graph.examination.examined` does, and note what came of it."""
    verdict = _examined(function, args, names)
    if verdict.reason is None or verdict.reason.kind not in UNCOUNTED:
        _found.setdefault(_place(bare(function)), set()).add(verdict.reason)
    return verdict


def _place(function: Any) -> tuple[str, int, str]:
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, types.FunctionType):
        code = function.__code__
        return Path(code.co_filename).name, code.co_firstlineno, code.co_name
    return type(function).__module__, 0, type(function).__qualname__


def package(value: Any) -> str:
    """Return the package of a function or a kind of objects; none for those of tests."""
    module = str(getattr(value, "__module__", None) or "")
    return "" if ".tests." in module else libraries.package(value)


def pytest_configure(config: Any) -> None:
    """Note verdicts from now on."""
    examination.examined = examined
    for module in (examination, check):
        vars(module)["package"] = package


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the share of functions that fuse, and why the others do not."""
    lost = {place: told - {None} for place, told in _found.items() if None not in told}
    write = terminalreporter.write_line
    write(f"functions of tests: {len(_found)}, of which {len(_found) - len(lost)} fuse")
    kinds = Counter(max(told, key=len).kind.name for told in lost.values() if told)
    for kind, count in kinds.most_common():
        write(f"  {count} {kind}")
    for (file, line, name), told in sorted(lost.items()):
        write(f"  {file}:{line} {name}: {'; '.join(sorted(map(str, told)))}")
