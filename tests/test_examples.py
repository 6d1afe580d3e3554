"""The examples in docstrings run, and show what really comes out."""

from __future__ import annotations

import doctest
import importlib
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]

# Need a library that only one of the GPU extras brings.
OPTIONAL = {"cuda", "numba.cuda", "cupy", "numba_cuda"}
# Are in no extra but `models-test`, because they are too big for it; TensorFlow is in none.
BIG = ("jax", "tensorflow", "torch")


def module_names() -> list[str]:
    """Return every module of the package but the entry points."""
    roots = {"gpusched": ROOT / "gpusched"}
    roots |= {f"gpusched.{name}": ROOT / name for name in ("workers", "serialization")}
    names = []
    for prefix, folder in roots.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            names.append(".".join((prefix, *parts)))
    return [name for name in dict.fromkeys(names) if not name.endswith("__main__")]


def is_imported(library: str, module: ModuleType) -> bool:
    """Return whether a module's examples import a library."""
    tests = doctest.DocTestFinder(exclude_empty=True).find(module)
    sources = [example.source for test in tests for example in test.examples]
    return any(re.match(rf"(import|from) {library}\b", source) for source in sources)


STARTING = {"gpusched.cli.checks.isolated", "gpusched.threadsafe.unreferenced_handles"}
"""Modules whose examples start processes."""


@pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.processes if name in STARTING else ())
        for name in module_names()
    ],
)
def test_examples_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if error.name is None or not any(error.name.startswith(one) for one in OPTIONAL):
            raise
        pytest.skip(f"needs {error.name}")
    absent = [library for library in BIG if find_spec(library) is None]
    missing = [library for library in absent if is_imported(library, module)]
    if missing:
        pytest.skip(f"needs {missing[0]}")
    result = doctest.testmod(module)
    assert result.failed == 0


def test_examples_are_found() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [
        importlib.import_module(f"gpusched.{name}") for name in ("config", "cluster.allocation")
    ]
    assert all(any(test.examples for test in finder.find(module)) for module in modules)
