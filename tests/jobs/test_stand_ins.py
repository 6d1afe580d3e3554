"""PBS, LSF and Kubernetes, which are not to be had here, by programs that stand in for theirs.

What is shown: which commands gpusched runs, what it makes of answers as the manuals show them, and
that a job's script does its work on two nodes.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpusched.jobs import systems
from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.request import Request
from gpusched.jobs.submitted import Job, status
from gpusched.jobs.systems.system import SystemFailure
from tests.cli.conftest import Runner
from tests.jobs.dry import first_on_path, program
from tests.jobs.scripts import RUNS

QSUB = """\
cat >$FOLDER/job
printf 'one\\none\\ntwo\\n' >$FOLDER/hosts
PBS_JOBID=7.server PBS_NODEFILE=$FOLDER/hosts setsid bash $FOLDER/job </dev/null >&0 2>&1 &
echo $! >$FOLDER/pid
echo 7.server
"""
"""Runs the job at once."""
TMRSH = 'echo "on $1"; shift; exec "$@"'
"""Runs a command here, whatever the node."""
ALIVE = 'kill -0 $(cat $FOLDER/pid) 2>/dev/null && { echo "    job_state = R"; exit; }'
QSTAT = f'{ALIVE}; echo "qstat: Unknown Job Id $2" >&2; exit 153'


@pytest.mark.exhaustive
def test_pbs_job_runs_on_both_nodes(gpusched: Runner, jobs: Path) -> None:
    folder = gpusched.folder
    for name, text in {"qsub": QSUB, "qstat": QSTAT, "pbs_tmrsh": TMRSH}.items():
        program(folder, name, text)
    gpusched.environment |= {"PATH": first_on_path(folder), "FOLDER": str(folder)}
    gpusched.script(RUNS)
    assert gpusched("certificates", "tls").returncode == 0
    flags = (
        "--nodes=2",
        "--gpus-per-node=0",
        "--worker-options=--threads=1",
        "--tls=tls",
        "--wait",
    )
    done = gpusched("submit", "--backend=pbs", *flags, "--", "script.py", "a b")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "on two" in done.stdout
    assert "scheme tls" in done.stdout
    assert "sum 2400000.0" in done.stdout
    assert (jobs / "pbs-7.server.log").exists()


@pytest.mark.parametrize(
    ("backend", "launcher", "variable"),
    [("pbs", "pbs_tmrsh", "PBS_NODEFILE"), ("lsf", "blaunch", "LSB_DJOB_HOSTFILE")],
)
def test_other_nodes_are_reached_by_the_systems_own_launcher(
    backend: str, launcher: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("here\nhere\nthere\n")
    monkeypatch.setenv(variable, str(hosts))
    program(tmp_path, launcher, "")
    monkeypatch.setenv("PATH", first_on_path(tmp_path))
    monkeypatch.setenv("DASK_SPECIAL", "it's")
    part = LaunchOptions(("script.py", "a b"), run=tmp_path, code_to_file=True)
    first, second = systems.find(backend).node_commands(part)
    assert first[1:4] == ["-m", "gpusched", "launch"]
    assert "--rank=0" in first
    assert second[:3] == [launcher, "there", "env"]
    assert "DASK_SPECIAL=it's" in second
    assert f"PATH={os.environ['PATH']}" in second
    assert second[-3:] == ["--", "script.py", "a b"]
    assert "--rank=1" in second


ANSWERS = [
    ("slurm", "squeue", "echo PENDING", "queued"),
    ("slurm", "squeue", "echo COMPLETING", "running"),
    ("slurm", "squeue", "echo CANCELLED", None),
    ("slurm", "squeue", "", None),
    ("slurm", "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", None),
    ("pbs", "qstat", "echo '    job_state = Q'", "queued"),
    ("pbs", "qstat", "echo '    job_state = R'", "running"),
    ("pbs", "qstat", "echo '    job_state = F'", None),
    ("pbs", "qstat", "echo 'qstat: 7 Job has finished, use -x' >&2; exit 35", None),
    ("lsf", "bjobs", "echo PEND", "queued"),
    ("lsf", "bjobs", "echo RUN", "running"),
    ("lsf", "bjobs", "echo EXIT", None),
    ("lsf", "bjobs", "echo 'Job <7> is not found' >&2; exit 255", None),
    ("k8s", "kubectl", "echo '{\"status\": {}}'", "queued"),
    ("k8s", "kubectl", 'echo \'{"status": {"ready": 1}}\'', "running"),
    ("k8s", "kubectl", 'echo "Error from server (NotFound): jobs 7" >&2; exit 1', None),
]


@pytest.mark.parametrize(("backend", "command", "text", "state"), ANSWERS)
@pytest.mark.processes
def test_state_is_read(
    backend: str, command: str, text: str, state: str | None, folder: Path
) -> None:
    program(folder, command, text)
    assert systems.find(backend).state("7") == state


@pytest.mark.parametrize(
    ("backend", "command"),
    [("slurm", "squeue"), ("pbs", "qstat"), ("lsf", "bjobs"), ("k8s", "kubectl")],
)
@pytest.mark.processes
def test_system_that_does_not_answer_says_nothing_of_the_job(
    backend: str, command: str, folder: Path
) -> None:
    program(folder, command, "echo 'cannot connect' >&2; exit 1")
    with pytest.raises(SystemFailure, match=f"{command}: cannot connect"):
        systems.find(backend).state("7")


@pytest.mark.parametrize(
    ("backend", "command", "words"),
    [
        ("slurm", "scancel", "7"),
        ("pbs", "qdel", "7"),
        ("lsf", "bkill", "7"),
        ("k8s", "kubectl", "delete --ignore-not-found job/7 service/7"),
    ],
)
@pytest.mark.processes
def test_job_is_cancelled(backend: str, command: str, words: str, folder: Path) -> None:
    program(folder, command, f'echo "$*" >{folder}/told')
    systems.find(backend).cancel("7")
    assert (folder / "told").read_text() == f"{words}\n"


@pytest.mark.parametrize(
    ("backend", "command", "answer", "number"),
    [
        ("slurm", "sbatch", "7;cluster", "7"),
        ("lsf", "bsub", "Job <7> is submitted to queue <short>.", "7"),
        ("k8s", "kubectl", "service/name created", "name"),
    ],
)
@pytest.mark.processes
def test_number_is_read(backend: str, command: str, answer: str, number: str, folder: Path) -> None:
    program(folder, command, f"cat >{folder}/told; echo '{answer}'")
    wanted = replace(request(backend), image="x", claim="y:/shared") if backend == "k8s" else None
    asked = wanted or request(backend)
    system = systems.find(backend)
    assert system.submit(asked) == number
    assert (folder / "told").read_text() == system.script(asked)


def test_lsf_queues_a_job_again_by_its_exit_code() -> None:
    lsf = systems.find("lsf")
    assert f"#BSUB -Q {lsf.requeue()}" in lsf.script(replace(request("lsf"), requeues=1))


@pytest.mark.processes
def test_code_of_a_job_on_kubernetes_is_that_of_its_first_pod(folder: Path) -> None:
    ended = {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}
    older = {"containerStatuses": [{"state": {"terminated": {"exitCode": 124}}}]}
    pods = [pod("2026-01-01T00:00:00Z", older), pod("2026-01-02T00:00:00Z", ended)]
    over = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    (folder / "job").write_text(json.dumps(over))
    (folder / "pods").write_text(json.dumps({"items": pods}))
    program(folder, "kubectl", f'cat {folder}/"$2"')
    job = Job("k8s", "name", "name", ("script.py",), 2, 0, 0.0)
    assert status(job).code == 3


def pod(created: str, status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": created}, "status": status}


def request(backend: str) -> Request:
    """Return a request for a job."""
    shared = Path("/shared")
    return Request(("script.py",), backend, "name", 3600, shared / "jobs", shared, "python")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder whose programs come first."""
    monkeypatch.setenv("PATH", first_on_path(tmp_path))
    return tmp_path
