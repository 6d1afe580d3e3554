"""Slurm."""

from __future__ import annotations

import os

from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import (
    System,
    clock,
    job_script,
    node_command,
    require,
)

_STATES = {
    "PENDING": "queued",
    "CONFIGURING": "queued",
    "REQUEUED": "queued",
    "REQUEUE_HOLD": "queued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
}
"""Of jobs that are not over."""


class Slurm(System):
    """By sbatch, squeue, scancel; and by srun in the job."""

    name = "slurm"
    submitter = "sbatch"
    remedy = "submit from a machine of the cluster (`module load slurm`), or use --backend local"
    # Said also of a job whose end is some minutes past.
    unknown = "Invalid job id"

    def script(self, request: Request) -> str:
        """Return a script for sbatch."""
        folder = f'"{request.root}/slurm-$SLURM_JOB_ID"'
        return job_script([f"#SBATCH {flag}" for flag in _flags(request)], request, folder)

    def submit(self, request: Request) -> str:
        """Submit by sbatch."""
        told = self.ask("sbatch", "--parsable", text=self.script(request))
        return told.splitlines()[-1].partition(";")[0]

    def state(self, number: str) -> str | None:
        """Ask squeue."""
        told = self.look_up("squeue", "--noheader", "--jobs", number, "--format=%T")
        return None if told is None else _STATES.get(told.partition("\n")[0].strip())

    def cancel(self, number: str) -> None:
        """Cancel by scancel."""
        self.ask("scancel", number)

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return one srun, which starts a task a node and passes signals on."""
        require("srun", "start this in a job of Slurm")
        flags = ["--ntasks-per-node=1", "--kill-on-bad-exit=1"]
        cpus = os.environ.get("SLURM_CPUS_PER_TASK")
        if cpus is not None:
            # Since Slurm 22.05 srun does not take it from the job.
            flags.append(f"--cpus-per-task={cpus}")
        return [["srun", *flags, *node_command(part)]]

    def requeue(self) -> int:
        """Ask slurmctld to queue this job again, which ends it."""
        from gpusched.jobs.node_processes import OUT_OF_TIME

        self.ask("scontrol", "requeue", os.environ["SLURM_JOB_ID"])
        return OUT_OF_TIME


def _flags(request: Request) -> list[str]:
    asked = {
        "gpus-per-node": request.gpus_per_node or None,
        "cpus-per-task": request.cpus,
        "mem": None if request.mebibytes is None else f"{request.mebibytes}M",
        "partition": request.queue,
        "account": request.account,
    }
    return [
        f"--job-name={request.name}",
        f"--nodes={request.nodes}",
        "--ntasks-per-node=1",
        *(f"--{name}={value}" for name, value in asked.items() if value is not None),
        f"--time={clock(request.seconds)}",
        f"--signal=B:USR1@{request.grace:.0f}",
        "--requeue" if request.requeues else "--no-requeue",
        "--open-mode=append",
        f"--output={request.root}/slurm-%j.log",
        *request.options,
    ]


SYSTEM = Slurm()
