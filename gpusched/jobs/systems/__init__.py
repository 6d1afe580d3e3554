"""Queueing systems, one file each, and this machine as one of them."""

from __future__ import annotations

import importlib
import shutil

from gpusched.jobs.systems.system import System

NAMES = ("slurm", "pbs", "lsf", "k8s", "local")


def find(name: str) -> System:
    """Return a queueing system by its name, one of `NAMES`.

    Examples
    --------
    >>> from gpusched.jobs import systems
    >>> systems.find("slurm").submitter
    'sbatch'
    """
    module = importlib.import_module(f"gpusched.jobs.systems.{name}")
    made: System = module.SYSTEM
    return made


def installed() -> str:
    """Return the name of the queueing system whose commands are on PATH, or "local".

    Kubernetes is not looked for: `kubectl` on a machine does not say that its jobs go there.
    """
    named = (name for name in ("slurm", "pbs", "lsf") if shutil.which(find(name).submitter))
    return next(named, "local")
