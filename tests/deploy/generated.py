"""Files of deploy/ that `gpusched submit` prints.

`python -m tests.deploy.generated` writes them.
"""

from __future__ import annotations

from unittest import mock

import dask.config
from click.testing import CliRunner

from gpusched.cli import main
from tests.deploy.jobs import DEPLOY

_EVERY = (
    "--dry-run",
    "--directory=/shared/project",
    "--nodes=2",
    "--gpus-per-node=4",
    "--cpus-per-node=32",
    "--time=2h",
)
_PYTHON = "--python=/shared/venv/bin/python"
_POD = (
    "--python=python",
    "--image=gpusched:cuda13",
    "--claim=project:/shared",
    "--tls=gpusched-tls",
    "--memory-per-node=200GiB",
)
FILES = {
    "slurm/cluster.sbatch": ("--backend=slurm", _PYTHON, "--requeue"),
    "pbs/cluster.pbs": ("--backend=pbs", _PYTHON),
    "lsf/cluster.lsf": ("--backend=lsf", _PYTHON, "--requeue"),
    "k8s/job.yaml": ("--backend=k8s", *_POD, "--requeue"),
}
"""The flags that make each file."""


def printed(file: str) -> str:
    """Return what `gpusched submit` prints for a file."""
    # The request's folders are those of nodes, of which this machine knows nothing.
    with (
        dask.config.set({"gpusched.jobs.folder": "/shared/jobs"}),
        mock.patch("gpusched.cli.submit._check_folders"),
    ):
        words = ["submit", *_EVERY, *FILES[file], "--", "script.py"]
        done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


if __name__ == "__main__":
    for name in FILES:
        (DEPLOY / name).write_text(printed(name))
