"""Imports what a process's first fused graph or task needs while the process has nothing to do.

Schedulers and workers that wait for their first graph do so in a thread. Otherwise it is done while
that graph is waited for, first by the scheduler, then by the workers, and takes half a second where
LLVM has to be asked for the kind of processor, too.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable

from gpusched import config
from gpusched.store import emitters

GRAPHS = "gpusched.graph.optimisation", "gpusched.graph.frontends.fused"
"""What the first graph needs."""
TASKS = "gpusched.graph.program", "gpusched.graph.safety.interpreter"
"""What the first task needs, with functions of the user's too."""


def prepare_for_graphs() -> threading.Thread | None:
    """Import what graphs are fused with; return the thread, None if the configuration says no."""
    return _start(lambda: _import(GRAPHS))


def prepare_for_tasks() -> threading.Thread | None:
    """Import what fused tasks run with, and get to know the processor; see `prepare_for_graphs`."""
    return _start(_import_and_identify)


def _start(work: Callable[[], None]) -> threading.Thread | None:
    if not config.get("fusion.import-early"):
        return None
    # A process that is to end does not wait for it.
    thread = threading.Thread(target=work, name="gpusched-import", daemon=True)
    thread.start()
    return thread


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def _import_and_identify() -> None:
    _import(TASKS)
    emitters.folder_name()
