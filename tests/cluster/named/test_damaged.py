"""Damaged files and folders of named clusters: each is reported, and hides no other cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusched.cluster.named import state
from tests.cli.conftest import call

RECORD = {
    "name": "bad",
    "pid": 1,
    "address": "tcp://127.0.0.1:1",
    "dashboard": "",
    "started": 1.0,
}


def file_instead_of_folder(folder: Path) -> None:
    folder.write_text("not a cluster")


def link_to_nothing(folder: Path) -> None:
    folder.symlink_to(folder.parent / "gone-away")


def text(content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        folder.mkdir()
        (folder / "state.json").write_text(content)

    return damage


def folder_instead_of_file(folder: Path) -> None:
    (folder / "state.json").mkdir(parents=True)


def state_file_that_links_to_nothing(folder: Path) -> None:
    folder.mkdir()
    (folder / "state.json").symlink_to(folder / "gone-away")


def bytes_of_no_text(folder: Path) -> None:
    folder.mkdir()
    (folder / "state.json").write_bytes(b"\xff\xfe{")


def lock_that_is_a_folder(folder: Path) -> None:
    (folder / "lock").mkdir(parents=True)
    (folder / "state.json").write_text("{")


DAMAGES = {
    "file instead of folder": (file_instead_of_folder, "is not a folder"),
    "link to nothing": (link_to_nothing, "is not a folder"),
    "empty": (text(""), "cannot be read: Expecting value"),
    "half": (text('{"name": "bad"'), "cannot be read: Expecting ',' delimiter"),
    "not text": (bytes_of_no_text, "cannot be read: 'utf-8' codec can't decode"),
    "list": (text("[1, 2]"), "it holds [1, 2] instead of the fields of a cluster"),
    "missing field": (text('{"name": "bad"}'), "the field 'pid' is missing"),
    "wrong type": (text(json.dumps(RECORD | {"pid": "7"})), "the field 'pid' is '7'"),
    "folder instead of file": (folder_instead_of_file, "Is a directory"),
    "state links to nothing": (
        state_file_that_links_to_nothing,
        "is a link to a file that does not exist",
    ),
    "lock is a folder": (lock_that_is_a_folder, "cannot be read"),
}


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this user's clusters, with a dead one called ``good``."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    root = state.root()
    (root / "good").mkdir()
    state.write(root / "good", state.Record(**RECORD | {"name": "good"}))  # type: ignore[arg-type]
    return root


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_cluster_is_reported_and_the_others_are_shown(clusters: Path, damage: str) -> None:
    make, message = DAMAGES[damage]
    make(clusters / "bad")
    shown = call("cluster", "status")
    assert shown.exit_code == 0, shown.output
    rows = [line.split()[:2] for line in shown.stdout.splitlines()]
    assert ["bad", "damaged"] in rows
    assert ["good", "dead"] in rows
    assert message in shown.stdout
    assert "`gpusched cluster stop bad` removes it" in shown.stdout
    alone = call("cluster", "status", "bad", "--json")
    assert alone.exit_code == 3
    assert json.loads(alone.stdout)["state"] == "damaged"


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_cluster_is_removed_by_stop(clusters: Path, damage: str) -> None:
    make, _ = DAMAGES[damage]
    make(clusters / "bad")
    stopped = call("cluster", "stop", "bad")
    assert (stopped.exit_code, stopped.stdout) == (
        0,
        "cluster 'bad' was dead; its traces are removed\n",
    )
    assert not os.path.lexists(clusters / "bad")
    assert (clusters / "good").exists()


@pytest.mark.parametrize("command", ["logs", "scale"])
def test_other_commands_report_a_file_in_place_of_the_folder(clusters: Path, command: str) -> None:
    file_instead_of_folder(clusters / "bad")
    done = call("cluster", command, "bad", *(["2"] if command == "scale" else []))
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("make", [file_instead_of_folder, link_to_nothing])
def test_what_is_in_the_way_is_not_locked(clusters: Path, make: Callable[[Path], None]) -> None:
    make(clusters / "bad")
    with pytest.raises(state.DamagedError, match=r"bad is in the way.*gpusched cluster stop bad"):
        state.acquire(clusters / "bad")


def test_lock_holds_the_number_of_its_process(clusters: Path) -> None:
    assert state.manager_of(clusters / "good") is None
    lock = state.acquire(clusters / "good")
    assert lock is not None
    assert state.manager_of(clusters / "good") == os.getpid()
    # Whoever tries meanwhile leaves the number alone.
    assert state.acquire(clusters / "good") is None
    assert state.manager_of(clusters / "good") == os.getpid()
    lock.close()
    assert state.manager_of(clusters / "good") is None


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_folder_of_all_clusters_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if kind == "file":
        (tmp_path / "gpusched").write_text("")
    else:
        (tmp_path / "gpusched").symlink_to(tmp_path / "nowhere")
    done = call("cluster", "status")
    assert done.exit_code == 1
    assert f"{tmp_path / 'gpusched'} is not a folder: remove it, or set XDG_RUNTIME_DIR" in (
        done.stderr
    )
