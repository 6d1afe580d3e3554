"""Imports what a process's first fused graph or task needs while the process has nothing to do.

Schedulers and workers do so as they start. Otherwise it is done while the first graph is waited
for, first by the scheduler, then by the workers, and takes half a second where LLVM has to be asked
for the kind of processor, too.

Not in a thread beside: what two threads import at once may be seen half made where modules import
each other, as those of ``dask.array`` do, and whoever starts a scheduler or a worker within a
process is likely to import arrays next.
"""

from __future__ import annotations

import importlib

from gpusched import config
from gpusched.store import emitters

GRAPHS = "gpusched.graph.optimisation", "gpusched.graph.frontends.fused_expressions"
"""What the first graph needs."""
TASKS = "gpusched.graph.program", "gpusched.graph.safety.interpreter"
"""What the first task needs, with functions of the user's too."""


def prepare_for_graphs() -> None:
    """Import what graphs are fused with, if the configuration says so."""
    if config.get("fusion.import-early"):
        _import(GRAPHS)


def prepare_for_tasks() -> None:
    """Import what fused tasks run with, and get to know the processor; see `prepare_for_graphs`."""
    if config.get("fusion.import-early"):
        _import(TASKS)
        emitters.folder_name()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
