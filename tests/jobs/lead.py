"""Runs a job's head with nodes that are bash scripts: lead.py FOLDER REQUEUES GRACE NODE...

Each script finds the job's present start in $RUN.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpusched.jobs import head_node, systems
from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.systems.local import Local


class Scripted(Local):
    """A queueing system whose nodes do what they are told."""

    def __init__(self, scripts: list[str]) -> None:
        self._scripts = scripts

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Return a command for each script."""
        told = ["env", f"RUN={part.run}", "bash", "-c"]
        return [[*told, script] for script in self._scripts]


def main(folder: str, requeues: str, grace: str, *scripts: str) -> int:
    """Run the job and return its exit code."""
    systems.find = lambda name: Scripted(list(scripts))
    head_node.CLOSING = float(os.environ.get("GPUSCHED_TEST_CLOSING", head_node.CLOSING))
    options = LaunchOptions(
        backend="local", folder=Path(folder), requeues=int(requeues), grace=float(grace)
    )
    return head_node.lead(options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
