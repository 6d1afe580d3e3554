"""The script for Slurm, run by Slurm itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from tests.deploy.jobs import DEPLOY, SECONDS, Site
from tests.deploy.slurm import Slurm, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

JOB = str(DEPLOY / "slurm/cluster.sbatch")
RESUMES = """\
import pathlib
from distributed import default_client

default_client().wait_for_workers(2, timeout=60)
pathlib.Path("saved").write_text("half of it")
open("fifo", "w").close()
default_client().submit(__import__("time").sleep, 600).result()
"""
"""Tells by the named pipe that it is running, and does not end by itself."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Give a Slurm with two nodes; afterwards none of its daemons runs."""
    started = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


def submit(slurm: Slurm, site: Site, *arguments: str, **settings: str) -> str:
    """Submit the job script and return the job's number."""
    environment = site.environment() | {"SLURM_CONF": str(slurm.file)} | settings
    flags = ["--parsable", "--gpus-per-node=0", "--cpus-per-task=1", "--output=log"]
    done = subprocess.run(
        ["sbatch", *flags, JOB, *arguments],
        cwd=site.folder,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=SECONDS,
    )
    return done.stdout.strip()


def start_staying(slurm: Slurm, site: Site, **settings: str) -> str:
    """Start a job that stays, and return its number when its script runs."""
    (site.folder / "stays.py").write_text(RESUMES)
    os.mkfifo(site.folder / "fifo")
    job = submit(slurm, site, "stays.py", **settings)
    (site.folder / "fifo").open().close()
    return job


def test_jobs_code_is_the_scripts(slurm: Slurm, site: Site) -> None:
    told = slurm.wait_for_state(submit(slurm, site, "script.py", "a"), "FAILED", "COMPLETED")
    text = (site.folder / "log").read_text()
    assert "sum 2400000.0" in text
    assert told["ExitCode"] == "7:0", text


def test_cancelled_job_leaves_nothing(slurm: Slurm, site: Site) -> None:
    job = start_staying(slurm, site)
    slurm.command("scancel", job)
    slurm.wait_for_state(job, "CANCELLED")
    wait_until_over(site)


def test_job_that_is_out_of_time_goes_back_into_the_queue(slurm: Slurm, site: Site) -> None:
    """By the signal that Slurm sends before the end (``--signal``)."""
    job = start_staying(slurm, site, REQUEUE="yes")
    slurm.command("scancel", "--batch", "--signal=USR1", job)
    told = slurm.wait_for_state(job, "PENDING")
    assert told["Restarts"] == "1"
    slurm.command("scancel", job)
    slurm.wait_for_state(job, "CANCELLED")
    wait_until_over(site)
    assert "back into the queue" in (site.folder / "log").read_text()
    assert (site.folder / "saved").read_text() == "half of it"


def wait_until_over(site: Site) -> None:
    """Wait for the processes of a job, which Slurm counts as over before they are."""
    psutil.wait_procs(list(site.processes()), timeout=60)
