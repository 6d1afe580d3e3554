"""`cluster list` and `jobs status`: what one group of commands has, the other has too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusched.jobs.submitted import _RECORD
from tests.cli.conftest import call


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have no clusters and no jobs."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def submitted(folder: Path, number: int) -> None:
    """Leave the record of a local job that has ended with 3."""
    job: dict[str, Any] = {
        "backend": "local",
        "number": str(number),
        "name": f"job-{number}",
        "nodes": 1,
        "requeues": 0,
        "command": ["script.py"],
        "submitted": float(number),
    }
    place = folder / "state/gpusched/jobs" / f"local-{number}"
    place.mkdir(parents=True, mode=0o700)
    (place / _RECORD).write_text(json.dumps(job))
    (place / "code").write_text("3")


def test_clusters_can_be_listed() -> None:
    assert call("cluster", "list").output == call("cluster", "status").output
    assert json.loads(call("cluster", "list", "--json").output) == []


def test_status_of_one_job(folders: Path) -> None:
    submitted(folders, 1)
    submitted(folders, 2)
    assert call("jobs", "status").output == call("jobs", "list").output
    [told] = json.loads(call("jobs", "status", "local-2", "--json").output)
    assert (told["job"], told["state"], told["code"]) == ("local-2", "ended", 3)
    unknown = call("jobs", "status", "local-9")
    assert unknown.exit_code == 2
    assert "there is no job 'local-9'; there are: local-1, local-2" in unknown.output


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"submitted": "then"}'])
def test_damaged_record_keeps_nobody_from_other_jobs(folders: Path, content: str) -> None:
    submitted(folders, 1)
    submitted(folders, 2)
    jobs = folders / "state/gpusched/jobs"
    whole = json.loads((jobs / "local-1" / _RECORD).read_text())
    changed = {**whole, **json.loads(content)} if "submitted" in content else None
    (jobs / "local-1" / _RECORD).write_text(json.dumps(changed) if changed else content)
    for words in (("list",), ("status",)):
        listed = call("jobs", *words)
        assert listed.exit_code == 0
        assert "local-2" in listed.stdout
        assert "job.json cannot be read" in listed.stderr
    one = call("jobs", "status", "local-1")
    assert one.exit_code == 1
    assert "`gpusched jobs remove local-1` removes it" in one.output
    assert "there are: local-1, local-2" in call("jobs", "logs", "local-9").output
    assert call("jobs", "cancel", "local-1").output == "job local-1 was over already\n"
    assert call("jobs", "remove", "local-1").exit_code == 0
    assert not call("jobs", "list").stderr
