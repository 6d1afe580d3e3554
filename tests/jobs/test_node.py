"""One node's part: which node it is, what it is told, and how it waits."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import psutil
import pytest

from gpusched.cli import main
from gpusched.jobs import node
from gpusched.jobs.launch_options import LaunchOptions
from tests.cli.conftest import Runner, call
from tests.jobs.scripts import RUNS
from tests.waiting import wait_for


@pytest.mark.parametrize("name", node.RANKS)
def test_rank_is_its_launchers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in node.RANKS:
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(ValueError, match=f"Give --rank, or set one of .*{name}"):
        node.rank_here()
    monkeypatch.setenv(name, "4")
    assert node.rank_here() == 4
    monkeypatch.setenv(name, "four")
    with pytest.raises(ValueError, match=f"{name} is 'four'"):
        node.rank_here()


def test_plan_and_flags_say_the_same() -> None:
    import click

    options = LaunchOptions(
        command=("script.py", "--n", "a b"),
        backend="local",
        folder=Path("/a folder"),
        nodes=2,
        gpus_per_node=0,
        limit=1e6,
        grace=90.5,
        requeues=3,
        checkpoints=Path("/kept"),
        tls=Path("/tls"),
        worker_options="--threads 2",
        code_to_file=True,
    )
    command = main.get_command(click.Context(main), "launch")
    assert command is not None
    assert LaunchOptions(**command.make_context("launch", options.words()).params) == options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["script.py"], "which job? Give --backend, --run or --address"),
        (["--run=a", "--address=b:1", "--rank=0", "script.py"], "which job?"),
        (["--backend=local", "script.py"], "--backend needs --folder"),
        (["--backend=local", "--folder=a", "--run=b", "script.py"], "excludes --run"),
        (["--run=a"], "name a script, after '--': gpusched launch -- script.py"),
        (["--run=a", "--", "--frob", "script.py"], "Usage: gpusched launch"),
        (
            ["--run=a", "--", "--frob", "script.py"],
            "before the script come options of",
        ),
        (["--run=a", "--", "--workers=2", "script.py"], "--workers before the script"),
    ],
)
def test_bad_input_is_named(words: list[str], message: str) -> None:
    done = call("launch", *words)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("slurm", "there is no srun on PATH: start this in a job of Slurm"),
        ("pbs", "PBS_NODEFILE is not set: start this in a job of that queueing system"),
        ("lsf", "LSB_DJOB_HOSTFILE is not set"),
        ("k8s", "give --address, not --backend"),
    ],
)
def test_launcher_outside_a_job_says_so(
    backend: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = [f"--backend={backend}", f"--folder={tmp_path / 'job'}", "--", "script.py"]
    done = call("launch", *words)
    assert done.exit_code == 1
    assert message in done.output


def test_launcher_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("here there")
    monkeypatch.setenv("PBS_NODEFILE", str(hosts))
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--backend=pbs", f"--folder={tmp_path / 'job'}", "--", "script.py"]
    done = call("launch", *words)
    assert done.exit_code == 1
    assert "there is no pbs_tmrsh on PATH" in done.output


@pytest.mark.exhaustive
def test_any_launcher_may_start_the_nodes(gpusched: Runner) -> None:
    """As mpirun does: by a variable, and the exit code is the script's."""
    gpusched.script(RUNS)
    words = (
        "launch",
        "--gpus-per-node=0",
        "--run=run",
        "--worker-options=--threads=1",
        "--",
        "script.py",
    )
    started = []
    for rank in ("1", "0"):
        gpusched.environment["PMIX_RANK"] = rank
        started.append(gpusched.start(*words))
    told, errors = started[1].communicate()
    assert started[1].returncode == 6, told + errors
    assert "sum 2400000.0" in told
    assert started[0].wait() == 0
    late = gpusched(*words[:1], "--rank=1", *words[1:])
    assert late.returncode == 0, late.stderr
    again = gpusched(*words[:1], "--rank=0", *words[1:])
    assert again.returncode == 1
    assert "run has been used (code): give each start a folder of its own" in again.stderr
    for process in started:
        process.communicate()


def test_node_whose_workers_wait_ends_when_it_is_told_to(gpusched: Runner) -> None:
    (gpusched.folder / "run").mkdir()
    gpusched.script("")
    words = (
        "launch",
        "--gpus-per-node=0",
        "--run=run",
        "--rank=1",
        "--grace=0.1",
        "--",
        "script.py",
    )
    with socket.socket() as silent:
        # Bound and not listening, so that nobody else can answer there.
        silent.bind(("127.0.0.1", 0))
        told = json.dumps({"address": f"tcp://127.0.0.1:{silent.getsockname()[1]}"})
        (gpusched.folder / "run/scheduler.json").write_text(told)
        waiting = gpusched.start(*words)
        wait_for(lambda: psutil.Process(waiting.pid).children())
        waiting.terminate()
        waiting.communicate()
    assert waiting.returncode == 143


def test_node_without_a_first_one_gives_up(gpusched: Runner) -> None:
    gpusched.script("")
    gpusched.environment["DASK_GPUSCHED__JOBS__START_TIMEOUT"] = "0"
    done = gpusched("launch", "--gpus-per-node=0", "--run=run", "--rank=5", "--", "script.py")
    assert done.returncode == 1
    assert "Error: node 5 found no scheduler in run within 0 s: start node 0" in done.stderr


def test_scheduler_that_cannot_start_ends_the_job(gpusched: Runner) -> None:
    gpusched.script("")
    words = ("launch", "--gpus-per-node=0", "--run=run", "--rank=0", "--scheduler-options=--port=x")
    done = gpusched(*words, "--", "script.py")
    assert done.returncode == 1
    assert "the scheduler did not start; what it said is above" in done.stderr
    # So that the other nodes, which wait for the scheduler, end.
    assert (gpusched.folder / "run/code").read_text() == "1"
