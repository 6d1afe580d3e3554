"""Jobs of a real Slurm with two nodes on this machine, which the tests start.

Workers that are killed may leave files in the scratch folder: see test_local.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.workers.visible_gpus import visible_devices
from tests.cli.conftest import Runner
from tests.jobs.scripts import COUNTS, RUNS, STAYS, calls
from tests.jobs.slurm import Slurm, missing
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

NODES = ("--backend=slurm", "--nodes=2", "--gpus-per-node=0", "--worker-options=--threads=1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Give a Slurm with two nodes; afterwards none of its daemons runs."""
    started = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def submit(gpusched: Runner, slurm: Slurm) -> Runner:
    """Give a runner whose jobs go to that Slurm."""
    gpusched.environment["SLURM_CONF"] = str(slurm.file)
    return gpusched


def test_job_waited_for_ends_with_the_scripts_code(submit: Runner, slurm: Slurm) -> None:
    submit.script(RUNS)
    done = submit("submit", *NODES, "--wait", "--", "script.py", "a")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "sum 2400000.0" in done.stdout
    number = done.stderr.split("job slurm-")[1].split()[0]
    assert slurm.wait_for_state(number, "FAILED", "COMPLETED")["ExitCode"] == "7:0"
    assert f"slurm-{number}" in submit("jobs", "list").stdout


def test_cancelled_job_leaves_nothing(submit: Runner, slurm: Slurm, jobs: Path) -> None:
    submit.script(STAYS)
    job = submitted(submit)
    wait_for((submit.folder / "up").exists)
    assert "is asked to stop" in submit("jobs", "cancel", job).stdout
    slurm.wait_for_state(job.removeprefix("slurm-"), "CANCELLED")
    wait_for((jobs / job / "code").exists)
    assert submit("jobs", "logs", job).returncode == 0
    assert submit("jobs", "remove", job).returncode == 0
    assert list(jobs.iterdir()) == []
    submit.may_leave_files = True


def test_job_that_is_out_of_time_goes_back_and_goes_on(
    submit: Runner, slurm: Slurm, jobs: Path
) -> None:
    """By the signal that Slurm sends before the end; the second start finds what was kept."""
    submit.script(COUNTS)
    job = submitted(submit, "--requeue")
    number = job.removeprefix("slurm-")
    wait_for((submit.folder / "up").exists)
    slurm.command("scancel", "--batch", "--signal=USR1", number)
    assert slurm.wait_for_state(number, "PENDING")["Restarts"] == "1"
    # Slurm waits two minutes before it starts the job again, unless it is told not to.
    slurm.command("scontrol", "release", number)
    slurm.command("scontrol", "update", f"jobid={number}", "starttime=now")
    (submit.folder / "go").touch()
    slurm.wait_for_state(number, "COMPLETED", "FAILED")
    text = (jobs / f"{job}.log").read_text()
    assert (jobs / job / "code").read_text() == "0", text
    assert "whole 21.0" in text
    assert calls(submit.folder) == [1] * 6
    submit.may_leave_files = True


def test_gpus_that_no_node_has_are_refused(submit: Runner) -> None:
    submit.script(RUNS)
    done = submit("submit", "--backend=slurm", "--gpus-per-node=3", "--", "script.py")
    assert done.returncode == 1
    assert "sbatch: " in done.stderr


@pytest.mark.skipif(bool(visible_devices()), reason="this machine has a GPU")
def test_gpus_that_slurm_promised_and_are_not_there_end_the_job(submit: Runner) -> None:
    submit.script(STAYS)
    done = submit("submit", "--backend=slurm", "--gpus-per-node=2", "--wait", "--", "script.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "none was found" in done.stdout
    assert "the first node's workers failed before the script ended" in done.stdout


def submitted(submit: Runner, *flags: str) -> str:
    """Submit a script, and return the job's name."""
    done = submit("submit", *NODES, *flags, "--", "script.py")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1]
