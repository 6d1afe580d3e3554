"""What cannot be submitted: one message with the value, the place and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import dask.config
import pytest

from tests.jobs.dry import KUBERNETES, first_on_path, program, submit

SLURM = "--backend=slurm"
LOCAL = "--backend=local"
K8S = ["--backend=k8s", *KUBERNETES]
BAD = [
    ([SLURM], "name a script, after '--': gpusched submit -- script.py"),
    ([SLURM, "missing.py"], "there is no script missing.py"),
    ([SLURM, "--", "--cpu", "script.py"], "--cpu before the script has no meaning in a job"),
    ([SLURM, "--", "--bad", "script.py"], "No such option"),
    ([SLURM, "--time=8:00", "script.py"], "cannot read --time '8:00': write hours:minutes:seconds"),
    ([SLURM, "--time=99:99:99", "script.py"], "cannot read --time '99:99:99'"),
    ([SLURM, "--time=1:00:60", "--dry-run", "script.py"], "cannot read --time '1:00:60'"),
    (
        [LOCAL, "--dry-run", "--directory=/no/such", "script.py"],
        "--directory /no/such is not a folder of this machine",
    ),
    ([LOCAL, "--tls=/no/such", "script.py"], "--tls /no/such is not a folder of this machine"),
    ([LOCAL, "--python=/no/such", "script.py"], "--python /no/such is not a program"),
    ([SLURM, "--time=90", "script.py"], "cannot read --time '90'"),
    ([SLURM, "--time=0m", "script.py"], "cannot read --time '0m'"),
    ([SLURM, "--time=", "script.py"], "cannot read --time ''"),
    ([SLURM, "--time=inf h", "script.py"], "cannot read --time 'inf h'"),
    ([SLURM, "--grace=soon", "script.py"], "cannot read --grace 'soon'"),
    ([SLURM, "--time=2m", "script.py"], "--grace 120 s leaves nothing of --time 120 s"),
    ([SLURM, "--nodes=0", "script.py"], "--nodes cannot be '0': write a whole number, 1 or more"),
    (
        [SLURM, "--gpus-per-node=-1", "script.py"],
        "--gpus-per-node cannot be '-1': write a whole number, 0 or more",
    ),
    ([SLURM, "--memory-per-node=much", "script.py"], "--memory-per-node cannot be 'much'"),
    ([SLURM, "--memory-per-node=-1", "script.py"], "--memory-per-node cannot be '-1'"),
    ([SLURM, "--memory-per-node=3", "script.py"], "64.00 MiB or more"),
    ([SLURM, "--name=my job", "script.py"], "'my job' cannot be a job's name"),
    ([SLURM, "--option=exclusive", "script.py"], "should be one flag of the queueing system"),
    (
        [SLURM, "--worker-options=--threads=x", "script.py"],
        "--worker-options '--threads=x': 'x' is",
    ),
    ([SLURM, "--worker-options='", "script.py"], "cannot read --worker-options"),
    ([SLURM, "--worker-options=--help", "script.py"], "starts nothing"),
    ([SLURM, "--scheduler-options=--cpu", "script.py"], "--scheduler-options '--cpu': No such"),
    ([SLURM, "--image=x", "script.py"], "--image and --claim are for Kubernetes"),
    (["--backend=cray", "script.py"], "'cray' is not one of"),
    (["--backend=pbs", "--requeue", "script.py"], "a job of PBS cannot queue itself again"),
    ([LOCAL, "--nodes=2", "--gpus-per-node=999", "script.py"], "takes 1998 GPUs, and this machine"),
    ([LOCAL, "--queue=short", "script.py"], "--queue has no meaning with --backend local"),
    (["--backend=k8s", "script.py"], "--backend k8s needs --image"),
    (["--backend=k8s", "--image=x", "script.py"], "--backend k8s needs --claim NAME:PATH"),
    (["--backend=k8s", "--image=x", "--claim=name", "script.py"], "needs --claim NAME:PATH"),
    ([*K8S, "script.py"], "is not in /shared, where pods see the claim"),
    (
        [*K8S, "--directory=/shared", "--queue=x", "script.py"],
        "--queue has no meaning with --backend k8s: change what",
    ),
    ([*K8S, "--directory=/shared", "--name=A", "script.py"], "Kubernetes takes small letters"),
]


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder with a script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_bad_input_is_named_and_nothing_is_made(
    flags: list[str], message: str, tmp_path: Path
) -> None:
    done = submit(*flags)
    assert message in " ".join(done.output.split()), done.output
    assert done.output.count("Error: ") == 1
    assert done.exit_code == 2
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("backend", "command"),
    [("slurm", "sbatch"), ("pbs", "qsub"), ("lsf", "bsub"), ("k8s", "kubectl")],
)
def test_queueing_system_that_is_not_here_is_named(
    backend: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    flags = [*KUBERNETES, "--directory=/shared"] if backend == "k8s" else []
    done = submit(f"--backend={backend}", *flags, "script.py")
    assert done.exit_code == 1
    assert f"there is no {command} on PATH: " in done.output


@pytest.mark.processes
def test_what_the_queueing_system_refuses_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path, "sbatch", 'echo "sbatch: error: invalid partition: x" >&2; exit 1')
    monkeypatch.setenv("PATH", first_on_path(tmp_path))
    done = submit(SLURM, "--queue=x", "script.py")
    assert done.exit_code == 1
    assert "sbatch: sbatch: error: invalid partition: x" in done.output


def test_what_only_nodes_could_have_is_warned_of() -> None:
    missing = ["--directory=/no/such", "--tls=/no/tls", "--python=/no/python"]
    done = submit(SLURM, "--dry-run", *missing, "script.py")
    assert done.exit_code == 0
    for told in (
        "--directory /no/such is not a folder",
        "--tls /no/tls is not a folder",
        "--python /no/python is not a program",
    ):
        assert f"Warning: {told} of this machine: make sure that the nodes have it" in done.output


def test_a_damaged_pack_is_refused_before_it_waits_in_a_queue(tmp_path: Path) -> None:
    pack = tmp_path / "kernels.pack"
    pack.write_bytes(b"no pack")
    done = submit(SLURM, "--dry-run", f"--kernels={pack}", "script.py")
    assert done.exit_code == 2
    assert f"--kernels: {pack} is not a pack of kernels, or damaged" in done.output
    pack.chmod(0o666)
    done = submit(SLURM, "--dry-run", f"--kernels={pack}", "script.py")
    assert "somebody else owns it or may write it" in done.output


def test_system_is_chosen_by_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bsub", "qsub"):
        program(tmp_path, name, "exit 1")
        monkeypatch.setenv("PATH", str(tmp_path))
        told = submit("--dry-run", "script.py").output
        assert f"--backend={ {'bsub': 'lsf', 'qsub': 'pbs'}[name] }" in told


def test_folder_of_others_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with dask.config.set({"gpusched.jobs.folder": str(shared)}):
        done = submit(LOCAL, "--gpus-per-node=0", "script.py")
    assert done.exit_code == 1
    assert "set gpusched.jobs.folder to a folder of your own" in done.output
    assert os.listdir(shared) == []


def test_folder_that_queueing_systems_cannot_read_is_refused() -> None:
    with dask.config.set({"gpusched.jobs.folder": "/my jobs"}):
        done = submit(SLURM, "--dry-run", "script.py")
    assert done.exit_code == 2
    assert "the folder of jobs cannot be '/my jobs': set gpusched.jobs.folder" in done.output
