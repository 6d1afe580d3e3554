"""Imports while a process has nothing to do."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import dask
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
import os, sys, threading, dask, dask.array
from gpusched.graph import hook
dask.config.set({"gpusched.fusion.import-early": True})
before = {*sys.modules}
hook.enable()
"""
"""Switches fusion on, as programs do before they make arrays."""


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.essential
def test_thread_imports_nothing_that_may_be_seen_half_made() -> None:
    """Whatever the program imports meanwhile: with no cycle, no two threads wait for each other."""
    wait = "[t.join() for t in threading.enumerate() if t.name == 'gpusched-imports']\n"
    found = _run(f"{wait}print(*sorted({{*sys.modules}} - before))").split()
    assert {*early.GRAPHS, *early.TASKS} <= {*found}
    others = {name.partition(".")[0] for name in found} - {"gpusched", *sys.stdlib_module_names}
    assert others <= {"dask"} and [n for n in found if n.startswith("dask.array")] == []
    for name in found:
        spec = find_spec(name) if name.startswith("gpusched") else None
        if spec is not None and spec.origin and spec.submodule_search_locations:
            assert f" {name}" not in Path(spec.origin).read_text(), f"{name} imports its modules"


@pytest.mark.parametrize(("has_graph", "compiled"), [(False, True), (False, False), (True, True)])
def test_thread_identifies_the_compiler_where_kernels_may_be_on_disk(
    has_graph: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(early, "has_graph", has_graph)
    monkeypatch.setattr(early, "TASKS", ())
    known: list[str] = []
    monkeypatch.setattr(emitters, "toolchain", lambda: known.append("identified"))
    if compiled:
        (tmp_path / "kernels").mkdir()
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        early._prepare()
    assert known == ["identified"] * (compiled and not has_graph)


@pytest.mark.processes
def test_process_that_is_forked_meanwhile_can_import() -> None:
    code = "child = os.fork()\nimport gpusched.graph.program\n"
    assert _run(f"{code}if child: print(os.waitpid(child, 0)[1])") == "0\n"


@pytest.mark.processes
def test_process_may_end_at_once() -> None:
    assert _run("") == ""


def test_thread_is_for_programs_that_have_no_graph_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.array", sys)
    monkeypatch.setattr(early, "GRAPHS", ("missing_module",))
    monkeypatch.setattr(early, "has_begun", False)
    monkeypatch.setattr(early, "has_graph", True)
    begun: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (begun.append(t), start(t)))
    with dask.config.set(ON):
        early.begin()
        early.begin()
    (thread,) = begun
    thread.join()


def test_process_without_threads_leaves_it_to_the_first_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setitem(sys.modules, "dask.array", sys)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(early, "has_begun", False)
    with dask.config.set(ON):
        early.begin()
    assert early.has_begun


@pytest.mark.processes
@pytest.mark.parametrize("fuse", [True, False])
def test_workers_import_before_their_first_task_where_fusion_is_on(fuse: bool) -> None:
    with (
        dask.config.set(ON),
        Cluster(1, 1, gpus=0, fuse=fuse) as cluster,
        Client(cluster) as client,
    ):
        (found,) = client.run(_imported).values()
    assert found >= set(early.TASKS) if fuse else not found
