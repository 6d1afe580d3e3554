"""IBM Spectrum LSF."""

from __future__ import annotations

import re

from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import System, SystemFailure, job_script, minutes, on_hosts

REQUEUE = 99
"""The exit code that asks for the job to be queued again."""
_STATES = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT", "PROV"), "queued"),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "UNKWN"), "running"),
}
"""Of jobs that are not over."""


class Lsf(System):
    """By bsub, bjobs, bkill; and by blaunch in the job."""

    name = "lsf"
    submitter = "bsub"
    remedy = "submit from a machine of the cluster, or use --backend local"
    unknown = "is not found"

    def script(self, request: Request) -> str:
        """Return a script for bsub."""
        folder = f'"{request.root}/lsf-$LSB_JOBID"'
        return job_script([f"#BSUB {flag}" for flag in _flags(request)], request, folder)

    def submit(self, request: Request) -> str:
        """Submit by bsub."""
        told = self.ask("bsub", text=self.script(request))
        found = re.search(r"Job <(\d+)>", told)
        if found is None:
            raise SystemFailure(f"bsub printed no job number, but: {told}")
        return found[1]

    def state(self, number: str) -> str | None:
        """Ask bjobs."""
        told = self.look_up("bjobs", "-noheader", "-o", "stat", number)
        return None if told is None else _STATES.get(told)

    def cancel(self, number: str) -> None:
        """Cancel by bkill."""
        self.ask("bkill", number)

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return one command for each host of the job."""
        return on_hosts("blaunch", "LSB_DJOB_HOSTFILE", part)

    def requeue(self) -> int:
        """Return the exit code for it (``-Q``)."""
        return REQUEUE


def _flags(request: Request) -> list[str]:
    cores = request.cpus or 1
    needs = [f"span[ptile={cores}]"]
    if request.mebibytes is not None:
        needs.append(f"rusage[mem={request.mebibytes}MB/host]")
    named = {"-q": request.queue, "-P": request.account}
    return [
        f"-J {request.name}",
        f"-n {cores * request.nodes}",
        f'-R "{" ".join(needs)}"',
        *([f'-gpu "num={request.gpus_per_node}"'] if request.gpus_per_node else []),
        f"-W {minutes(request.seconds)}",
        "-wa USR2",
        f"-wt {minutes(request.grace)}",
        *(f"{flag} {value}" for flag, value in named.items() if value is not None),
        *(["-r", f"-Q {REQUEUE}"] if request.requeues else ["-rn"]),
        f"-o {request.root}/lsf-%J.log",
        *request.options,
    ]


SYSTEM = Lsf()
