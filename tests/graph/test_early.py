"""Imports while a process has nothing to do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import pytest
from distributed import Client

from gpusched import Cluster
from gpusched.graph import early
from gpusched.store import emitters

ON = {"gpusched.fusion.import-early": True}


def _imported() -> set[str]:
    """Return what this process has imported."""
    return {*early.GRAPHS, *early.TASKS} & sys.modules.keys()


def test_what_is_needed_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("needed_by_tasks", "needed_by_graphs"):
        (tmp_path / f"{name}.py").touch()
        monkeypatch.setitem(sys.modules, name, None)  # So that it is as before afterwards.
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(early, "TASKS", ("needed_by_tasks",))
    monkeypatch.setattr(early, "GRAPHS", ("needed_by_graphs",))
    known: list[str] = []
    monkeypatch.setattr(emitters, "folder_name", lambda: known.append("identified"))
    with dask.config.set(ON):
        early.prepare_for_tasks()
        early.prepare_for_graphs()
    assert {"needed_by_tasks", "needed_by_graphs"} <= sys.modules.keys()
    assert known == ["identified"]


def test_configuration_may_leave_it_to_the_first_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "TASKS", ("missing_module",))
    monkeypatch.setattr(early, "GRAPHS", ("missing_module",))
    with dask.config.set({"gpusched.fusion.import-early": False}):
        early.prepare_for_tasks()
        early.prepare_for_graphs()


PROGRAM = """
import sys, dask, dask.array as da, numpy as np
import gpusched
dask.config.set({"gpusched.fusion.import-early": True, "gpusched.fusion.minimum-elements": 0})
def program(x):
    return ((x - x.mean(axis=0)) / (x.std(axis=0) + 1)).sum() + x.map_blocks(lambda b: b * 2).max()
"""


def _run(code: str, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, timeout=60,
        env=os.environ | settings,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


ARRAY = "x = da.from_array(np.ones((40, 20)), chunks=(10, 20))\n"
CALL = """
before = {*sys.modules}
print(float(program(x).compute(scheduler="sync")))
print(*sorted(name for name in {*sys.modules} - before if name.startswith("gpusched")))
"""


@pytest.mark.processes
def test_the_first_call_with_known_kernels_imports_nothing(tmp_path: Path) -> None:
    """Whether arrays are made before fusion is switched on or after that."""
    folder = {"DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(tmp_path)}
    on = "gpusched.enable()\n"
    _run(on + ARRAY + CALL, DASK_GPUSCHED__FUSION__COMPILE="wait", **folder)
    for first in (on + ARRAY, ARRAY + on):
        result, imported = _run(first + CALL, **folder).split("\n")[:2]
        assert (float(result), imported) == (2.0, "")


@pytest.mark.processes
def test_programs_that_import_arrays_later_are_prepared_as_they_make_the_first() -> None:
    code = """
del sys.modules["dask.array"]
gpusched.enable()
print("gpusched.graph.optimisation" in sys.modules)
sys.modules["dask.array"] = da
x = da.ones(3)
print("gpusched.graph.optimisation" in sys.modules)
"""
    assert _run(code).split() == ["False", "True"]


def _prepared(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Prepare this process, of which nothing is imported; return what was done."""
    done: list[str] = []
    monkeypatch.setattr(early, "is_prepared", False)
    monkeypatch.setattr(early, "_import", lambda names: done.extend(names))
    monkeypatch.setattr(emitters, "folder_name", lambda: done.append("identified"))
    with dask.config.set(ON | {"gpusched.fusion.cache-directory": str(folder)}):
        early.prepare()
        early.prepare()
    return done


@pytest.mark.parametrize("compiled", [True, False])
def test_the_compiler_is_identified_where_kernels_may_be_on_disk(
    compiled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if compiled:
        (tmp_path / "kernels").mkdir()
    found = _prepared(monkeypatch, tmp_path)
    assert found == [*early.GRAPHS, *early.TASKS, *["identified"] * compiled]


def test_nothing_is_imported_in_the_middle_of_importing_arrays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(da.__spec__, "_initializing", True, raising=False)
    assert _prepared(monkeypatch, tmp_path) == []


@pytest.mark.processes
def test_importing_the_package_prepares_nothing() -> None:
    names = "print(*(name for name in sys.modules if name.startswith('gpusched')))"
    assert set(_run(names).split()) == {"gpusched", "gpusched.config"}


@pytest.mark.processes
@pytest.mark.parametrize("fuse", [True, False])
def test_workers_import_before_their_first_task_where_fusion_is_on(fuse: bool) -> None:
    """And no task pays for looking whether all that can be let go of."""
    with (
        dask.config.set(ON),
        Cluster(1, 1, gpus=0, fuse=fuse) as cluster,
        Client(cluster) as client,
    ):
        (found,) = client.run(_imported).values()
        (kept,) = client.run(gc.get_freeze_count).values()
    assert found >= set(early.TASKS) if fuse else not found
    assert kept > 50_000
