"""OpenPBS and PBS Professional."""

from __future__ import annotations

import re

from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import System, clock, job_script, on_hosts

_STATES = {**dict.fromkeys("QHWT", "queued"), **dict.fromkeys("RESBU", "running")}
"""By the letters of qstat; others are of jobs that are over."""


class Pbs(System):
    """By qsub, qstat, qdel; and by pbs_tmrsh in the job."""

    name = "pbs"
    submitter = "qsub"
    remedy = "submit from a machine of the cluster, or use --backend local"
    unknown = "(?i)unknown job|has finished"

    def script(self, request: Request) -> str:
        """Return a script for qsub."""
        folder = f'"{request.root}/pbs-$PBS_JOBID"'
        flags = [f"#PBS {flag}" for flag in _flags(request)]
        # PBS itself would bring the log when the job has ended.
        log = f'exec >>"{request.root}/pbs-$PBS_JOBID.log" 2>&1'
        return job_script(flags, request, folder, log)

    def submit(self, request: Request) -> str:
        """Submit by qsub."""
        return self.ask("qsub", text=self.script(request)).splitlines()[-1].strip()

    def state(self, number: str) -> str | None:
        """Ask qstat."""
        found = re.search(r"job_state = (\w)", self.look_up("qstat", "-f", number) or "")
        return None if found is None else _STATES.get(found[1])

    def cancel(self, number: str) -> None:
        """Cancel by qdel."""
        self.ask("qdel", number)

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return one command for each host of the job."""
        return on_hosts("pbs_tmrsh", "PBS_NODEFILE", part)

    def settled(self, request: Request) -> Request:
        """Refuse what PBS cannot do."""
        if request.requeues:
            raise ValueError(
                "--requeue: a job of PBS cannot queue itself again. It is run again when a node "
                "fails; for one that is out of time, submit a second with "
                "--option='-W depend=afternotok:JOB' and the same --checkpoints"
            )
        return super().settled(request)


def _flags(request: Request) -> list[str]:
    memory = None if request.mebibytes is None else f"{request.mebibytes}mb"
    asked = {"ncpus": request.cpus, "ngpus": request.gpus_per_node or None, "mem": memory}
    chunk = [f"{name}={value}" for name, value in asked.items() if value is not None]
    flags = {"-q": request.queue, "-A": request.account}
    return [
        f"-N {request.name}",
        f"-l select={':'.join([str(request.nodes), *chunk])}",
        "-l place=scatter",
        f"-l walltime={clock(request.seconds)}",
        *(f"{flag} {value}" for flag, value in flags.items() if value is not None),
        "-j oe",
        "-o /dev/null",
        "-r y",
        "-V",
        *request.options,
    ]


SYSTEM = Pbs()
