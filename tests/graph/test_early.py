"""Imports while a process has nothing to do."""

from __future__ import annotations

import sys
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
