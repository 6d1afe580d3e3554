"""The texts that are submitted: their flags, that shells can read them, and what they run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.cli import main
from tests.jobs.dry import script

SHELLS = ("slurm", "pbs", "lsf", "local")
FLAGS = {"slurm": "#SBATCH ", "pbs": "#PBS ", "lsf": "#BSUB "}
FULL = (
    "--nodes=3",
    "--gpus-per-node=4",
    "--cpus-per-node=32",
    "--memory-per-node=200GiB",
    "--time=1-02:00:00",
    "--grace=5m",
    "--queue=gpu",
    "--account=physics",
    "--tls=/shared/tls",
    "--checkpoints=/shared/kept",
    "--worker-options=--device-memory-limit '60 GiB'",
)
COMMAND = "-m analysis.main it's $HOME ; --n"


def directives(backend: str, *flags: str) -> list[str]:
    """Return the lines for a queueing system."""
    lines = script(backend, *flags).splitlines()
    return [line.removeprefix(FLAGS[backend]) for line in lines if line.startswith(FLAGS[backend])]


@pytest.mark.parametrize("backend", SHELLS)
@pytest.mark.parametrize("flags", [(), FULL], ids=["plain", "full"])
@pytest.mark.processes
def test_shell_reads_it(backend: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if backend == "local":
        flags = ("--nodes=3",)
    file = tmp_path / "job"
    file.write_text(script(backend, *flags))
    checks = (["bash", "-n"], [Path(sys.executable).with_name("shellcheck"), "--shell=bash"])
    for command in checks:
        done = subprocess.run([*command, file], capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("backend", ["slurm", "pbs", "lsf"])
def test_flags_come_before_the_first_command(backend: str) -> None:
    lines = script(backend, *FULL).splitlines()
    given = [number for number, line in enumerate(lines) if line.startswith(FLAGS[backend])]
    assert given == list(range(1, len(given) + 1))


def test_slurm_gets_what_was_asked_for() -> None:
    told = directives("slurm", *FULL, "--requeue", "--option=--constraint=a100")
    assert {
        "--nodes=3",
        "--ntasks-per-node=1",
        "--gpus-per-node=4",
        "--cpus-per-task=32",
        "--mem=204800M",
        "--time=26:00:00",
        "--signal=B:USR1@300",
        "--partition=gpu",
        "--account=physics",
        "--requeue",
        "--output=/shared/jobs/slurm-%j.log",
        "--constraint=a100",
    } <= set(told)


def test_pbs_gets_what_was_asked_for() -> None:
    told = directives("pbs", *FULL, "--option=-W group_list=x")
    assert {
        "-l select=3:ncpus=32:ngpus=4:mem=204800mb",
        "-l walltime=26:00:00",
        "-q gpu",
        "-A physics",
        "-W group_list=x",
    } <= set(told)


def test_lsf_gets_what_was_asked_for() -> None:
    told = directives("lsf", *FULL, "--requeue")
    assert {
        "-n 96",
        '-R "span[ptile=32] rusage[mem=204800MB/host]"',
        '-gpu "num=4"',
        "-W 1560",
        "-wt 5",
        "-q gpu",
        "-P physics",
        "-Q 99",
    } <= set(told)


@pytest.mark.parametrize("backend", ["slurm", "pbs", "lsf"])
def test_what_was_not_asked_for_is_left_to_the_queueing_system(backend: str) -> None:
    told = " ".join(directives(backend))
    assert not re.search(r"gpu|cpu|mem|partition|account|-q |-A |-P ", told), told


@pytest.mark.parametrize("backend", ["slurm", "pbs", "lsf"])
def test_no_gpu_is_asked_for_by_none(backend: str) -> None:
    assert "gpu" not in " ".join(directives(backend, "--gpus-per-node=0"))
    assert "--gpus-per-node=0" in script(backend, "--gpus-per-node=0")


@pytest.mark.parametrize("backend", SHELLS)
@pytest.mark.processes
def test_launcher_takes_what_the_script_gives_it(backend: str, tmp_path: Path) -> None:
    """By bash's own reading of the script, and gpusched's of the launcher's arguments."""
    flags = ("--nodes=3",) if backend == "local" else FULL
    text = script(backend, *flags).replace("exec /shared/venv/bin/python", "printf '%s\\0'")
    text = re.sub(r"^(cd|exec >>).*$", "", text, flags=re.MULTILINE)
    ids = {"SLURM_JOB_ID": "7", "PBS_JOBID": "7", "LSB_JOBID": "7"}
    done = subprocess.run(["bash", "-c", text, "job", "/shared/jobs/local-7"], env=ids,
                          capture_output=True, text=True, check=True)  # fmt: skip
    module, name, launch, *words = done.stdout.split("\0")[:-1]
    assert (module, name, launch) == ("-m", "gpusched", "launch")
    told = parse(words)
    assert told["command"] == ("script.py", "--n", "3")
    assert told["backend"] == backend
    assert str(told["folder"]) == f"/shared/jobs/{backend}-7"
    if backend != "local":
        assert str(told["tls"]) == "/shared/tls"
        assert shlex.split(told["worker_options"]) == ["--device-memory-limit", "60 GiB"]
    # Slurm and LSF know when the time is over, and may change their mind.
    assert (told["limit"] is None) == (backend in ("slurm", "lsf"))


def parse(words: list[str]) -> dict[str, object]:
    """Return the launcher's arguments as click reads them."""
    import click

    command = main.get_command(click.Context(main), "launch")
    assert command is not None
    return command.make_context("launch", words).params


def test_arguments_are_quoted_for_the_shell(tmp_path: Path) -> None:
    text = script("slurm", command=COMMAND)
    last = text.splitlines()[-1].strip()
    assert shlex.split(last) == ["--", *COMMAND.split()]
