"""Submitting in this process, as far as that prints what would be submitted."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import dask.config
from click.testing import Result

from tests.cli.conftest import call

SYSTEMS = ("slurm", "pbs", "lsf", "k8s", "local")
KUBERNETES = ("--image=gpusched:cuda13", "--claim=project:/shared")


def submit(*flags: str) -> Result:
    """Return what `gpusched submit` prints and its exit code."""
    return call("submit", *flags)


def script(backend: str, *flags: str, command: str = "script.py --n 3") -> str:
    """Return the job script of a request that every queueing system takes."""
    every = ["--dry-run", "--directory=/shared/project", "--python=/shared/venv/bin/python"]
    own = KUBERNETES if backend == "k8s" else ()
    # The request's folders are those of nodes, of which this machine knows nothing.
    with (
        dask.config.set({"gpusched.jobs.folder": "/shared/jobs"}),
        mock.patch("gpusched.cli.submit._check_folders"),
    ):
        done = submit(f"--backend={backend}", *every, *own, *flags, "--", *command.split())
    assert done.exit_code == 0, done.output
    return done.output


def program(folder: Path, name: str, text: str) -> None:
    """Write a program that stands in for one of a queueing system's."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def first_on_path(folder: Path) -> str:
    """Return a PATH on which a folder comes first."""
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
