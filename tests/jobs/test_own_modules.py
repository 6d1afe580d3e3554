"""A kept result counts for the user's modules as they are, and not for their names."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from gpusched.jobs.own_modules import digest

MODULES = {
    "own_constants": "FACTOR = 2\n",
    "own_functions": (
        "from own_constants import FACTOR\n"
        "def times(block): return block * FACTOR\n"
        "class Times:\n"
        "    def __call__(self, block): return block * FACTOR\n"
    ),
    "own_others": "def later():\n    import own_unused\n",
    "own_unused": "",
}
"""Modules of a user's, by their names: the second one imports the first."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("own_functions")
    for name in MODULES:
        sys.modules.pop(name, None)


def found(function: Callable[..., Any]) -> str:
    x = da.ones(4, chunks=2).map_blocks(function, dtype=float, meta=np.ones(0))
    return digest(dict(x.__dask_graph__()).values())


def in_main(own: types.ModuleType, text: str) -> Callable[..., Any]:
    """Return a function as a script has it, of which dask's tokens have the code."""
    scope = {"__name__": "__main__", "own_functions": own, "times": own.times}
    made: Callable[..., Any] = eval(text, scope)
    return made


WAYS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": lambda own: own.times,
    "object": lambda own: own.Times(),
    "partial": lambda own: functools.partial(own.times),
    "vectorized": lambda own: np.vectorize(own.times),
    "by its name": lambda own: in_main(own, "lambda block: times(block)"),
    "of the module": lambda own: in_main(own, "lambda block: own_functions.times(block)"),
    "inside": lambda own: in_main(own, "lambda block: [times(each) for each in (block,)][0]"),
    "default": lambda own: in_main(own, "lambda block, f=times: f(block)"),
    "closure": lambda own: in_main(own, "(lambda f: lambda block: f(block))(times)"),
}


@pytest.mark.parametrize("way", WAYS)
def test_change_of_a_module_is_noticed(way: str, own: types.ModuleType, tmp_path: Path) -> None:
    function = WAYS[way](own)
    before = found(function)
    assert before == found(function) != ""
    (tmp_path / "own_constants.py").write_text("FACTOR = 3\n")
    assert found(function) != before


def test_what_is_imported_later_or_not_used_makes_no_difference(
    own: types.ModuleType, tmp_path: Path
) -> None:
    """A program that goes on from what was kept imports less than it did the first time."""
    others = importlib.import_module("own_others")
    before = found(others.later)
    others.later()
    (tmp_path / "own_unused.py").write_text("CHANGED = True\n")
    (tmp_path / "own_functions.py").write_text("CHANGED = True\n")
    assert found(others.later) == before


def test_installed_packages_and_scripts_are_not_looked_at(own: types.ModuleType) -> None:
    assert found(np.sqrt) == found(in_main(own, "lambda block: block + 1")) == ""


PROGRAM = """
import dask.array as da
import gpusched, helper
kept = gpusched.checkpoint("kept", da.ones(4, chunks=2).map_blocks(helper.f), directory="kept")
print(kept.sum().compute(scheduler="sync"))
"""


@pytest.mark.processes
def test_program_whose_module_was_changed_computes_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for factor in (2, 33):
        (tmp_path / "helper.py").write_text(f"def f(block):\n    return block * {factor}\n")
        done = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert float(done.stdout) == 4 * factor
