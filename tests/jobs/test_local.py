"""Jobs on this machine, by real processes: two nodes are two groups of them.

Workers that are killed, as those are that are still starting when a job ends, may leave files in
the scratch folder, which dask removes when it starts the next time.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpusched.files import write_whole
from gpusched.jobs import submitted
from gpusched.jobs.request import Request
from gpusched.jobs.systems import local
from gpusched.jobs.systems.local import _new_folder
from gpusched.jobs.systems.system import SystemFailure
from tests.cli.conftest import Runner
from tests.jobs.scripts import COUNTS, RUNS, TIDIES, calls
from tests.waiting import wait_for

LOCAL = ("submit", "--backend=local", "--gpus-per-node=0")
TWO = (*LOCAL, "--nodes=2", "--worker-options=--threads=1")


HELPED = """\
from helper import twice
from dask.distributed import default_client
print("twice", default_client().submit(twice, 3).result())
"""
"""Workers import what is beside the script."""


def test_script_runs_on_two_nodes_and_its_code_is_the_commands(gpusched: Runner) -> None:
    (gpusched.folder / "sub").mkdir()
    gpusched.script("def twice(x):\n    return 2 * x\n", "sub/helper.py")
    gpusched.script(HELPED + RUNS, "sub/script.py")
    done = gpusched(*TWO, "--wait", "--", "--quiet", "sub/script.py", "a")
    assert done.returncode == 7, done.stdout + done.stderr
    for line in ("twice 6\n", "scheme tcp\n", "sum 2400000.0\n"):
        assert line in done.stdout
    assert done.stderr == "job local-1 is submitted\n"
    [told] = json.loads(gpusched("jobs", "list", "--json").stdout)
    assert (told["job"], told["state"], told["code"], told["nodes"]) == ("local-1", "ended", 7, 2)
    assert gpusched("jobs", "logs", "local-1").stdout == done.stdout
    assert "was over already" in gpusched("jobs", "cancel", "local-1").stdout


@pytest.mark.exhaustive
def test_job_whose_node_dies_goes_on_from_what_was_kept(gpusched: Runner, jobs: Path) -> None:
    gpusched.script(COUNTS)
    waiting = gpusched.start(*LOCAL, "--requeue", "--wait", "--", "script.py")
    wait_for((gpusched.folder / "up").exists)
    [first] = [each for each in gpusched.processes() if "--rank=0" in each.cmdline()]
    # Before the second start may look for it.
    (gpusched.folder / "go").touch()
    first.kill()
    told, errors = waiting.communicate()
    assert waiting.returncode == 0, told + errors
    assert "for start 2 of at most 11" in told
    assert "whole 21.0" in told
    assert calls(gpusched.folder) == [1] * 6
    assert not (jobs / "local-1/checkpoints").exists()
    gpusched.may_leave_files = True


def test_ctrl_c_while_waiting_cancels_the_job(gpusched: Runner, jobs: Path) -> None:
    gpusched.script(TIDIES)
    waiting = gpusched.start(*LOCAL, "--wait", "--", "script.py")
    wait_for((gpusched.folder / "up").exists)
    os.killpg(waiting.pid, signal.SIGINT)
    told, errors = waiting.communicate()
    assert waiting.returncode == 130
    assert "cancelling job local-1" in errors
    # Of what came before and after, each line once.
    assert told.splitlines().count("stays") == told.splitlines().count("tidies up") == 1
    assert (jobs / "local-1/code").read_text() == "143"
    gpusched.may_leave_files = True


def test_job_is_ended_when_its_time_is_over(gpusched: Runner) -> None:
    """However far it has come by then."""
    gpusched.script("import time\ntime.sleep(600)\n")
    done = gpusched(*LOCAL, "--time=4s", "--grace=2s", "--wait", "--", "script.py")
    assert done.returncode == 124, done.stdout + done.stderr
    assert "out of time" in done.stdout
    gpusched.may_leave_files = True


def test_jobs_started_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: _new_folder(tmp_path), range(24)))
    assert {path.name for path in made} == {f"local-{number}" for number in range(1, 25)}


def a_request(root: Path) -> Request:
    return Request(("script.py",), "local", "mine", 600.0, root, root, sys.executable)


@pytest.mark.processes
def test_job_that_cannot_be_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, when its process has started already: nobody could cancel it."""
    started = []

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(["sleep", "600"], start_new_session=True))
        return started[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(local.subprocess, "Popen", start)
    monkeypatch.setattr(local, "write_whole", full_disk("pid"))
    with pytest.raises(OSError, match="No space left"):
        submitted.submit(a_request(tmp_path))
    started[0].returncode = None
    assert started[0].wait() == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_job_that_cannot_be_noted_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(local.Local, "submit", lambda *_: "7")
    monkeypatch.setattr(local.Local, "cancel", lambda _, number: cancelled.append(number))
    monkeypatch.setattr(submitted, "write_whole", full_disk("job.json"))
    with pytest.raises(SystemFailure, match=r"local-7 was submitted, and is cancelled.* space"):
        submitted.submit(a_request(tmp_path))
    assert cancelled == ["7"]


def full_disk(name: str) -> Any:
    """Return what writes files as long as they have another name."""

    def write(path: Path, content: bytes | str) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_whole(path, content)

    return write


@pytest.mark.processes
def test_script_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is no text."""
    popen = subprocess.Popen
    monkeypatch.setattr(local.subprocess, "Popen", lambda *_, **options: popen(["true"]))
    name = b"\xff.py"
    job = submitted.submit(replace(a_request(tmp_path), command=(os.fsdecode(name),)))
    assert b"-- '" + name + b"'" in (tmp_path / job.identity / "script").read_bytes()


def test_killed_job_is_lost(gpusched: Runner, jobs: Path) -> None:
    gpusched.script("import time\ntime.sleep(600)\n")
    assert gpusched(*LOCAL, "--", "script.py").returncode == 0
    assert gpusched("jobs", "remove", "local-1").returncode == 1
    head = psutil.Process(int((jobs / "local-1/pid").read_text()))
    started = jobs / "local-1/start-0"
    wait_for(started.exists)
    head.kill()
    told = gpusched("jobs", "list", "--json").stdout
    assert [each["state"] for each in json.loads(told)] == ["lost"]
    assert gpusched("jobs", "remove", "local-1").returncode == 0
    assert list(jobs.iterdir()) == []
    gpusched.may_leave_files = True
