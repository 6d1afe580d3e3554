"""A real Slurm with two nodes on this machine: munged, slurmctld and two slurmd."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.deploy.commands import PATH

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
_NODE = "CPUs=2 RealMemory=2000 Gres=gpu:2"
"""The GPUs are empty files: nothing stands behind them."""
CONFIGURATION = """\
ClusterName=gpusched-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName=node0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {has}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {has}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> str:
    """Return what keeps Slurm from running here, or nothing."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian's packages slurm-wlm and munge)"
    return "" if os.geteuid() == 0 else "starting slurmd takes root"


def free_ports(number: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """The daemons, and the commands that speak to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "slurm.conf"
        host, ports = socket.gethostname().split(".")[0], free_ports(3)
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
        for name in ("gpu0", "gpu1"):
            (folder / name).touch()
        self.file.write_text(CONFIGURATION.format(host=host, folder=folder, ports=ports, has=_NODE))
        for name in ("state", "spool-node0", "spool-node1"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons and wait until both nodes can take jobs."""
        folder, file = self.folder, str(self.file)
        files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "log", "pid", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        self._wait((folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D", "-f", file)
        for node in ("node0", "node1"):
            self._daemon("slurmd", "-D", "-N", node, "-f", file)
        self._wait(lambda: self.command("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2")

    def stop(self) -> None:
        """Stop the daemons."""
        for daemon in self._daemons[::-1]:
            daemon.terminate()
        for daemon in self._daemons[::-1]:
            daemon.wait(30)

    def command(self, name: str, *arguments: str) -> str:
        """Return what a command of Slurm's prints; nothing, if it fails."""
        environment = os.environ | {"SLURM_CONF": str(self.file), "PATH": PATH}
        done = subprocess.run([name, *arguments], env=environment, capture_output=True, text=True)
        return done.stdout

    def state(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job."""
        words = self.command("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for_state(self, job: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of these states, and return what is known of it."""
        self._wait(lambda: self.state(job).get("JobState") in states)
        return self.state(job)

    def _daemon(self, *command: str) -> None:
        environment = os.environ | {"PATH": PATH}
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def _wait(self, condition: object, seconds: float = 90) -> None:
        assert callable(condition)
        end = time.monotonic() + seconds
        while not condition():
            # Nothing of Slurm's can be waited on but its answers.
            assert time.monotonic() < end, (self.folder / "daemons.log").read_text()
            time.sleep(0.1)  # noqa: TID251
