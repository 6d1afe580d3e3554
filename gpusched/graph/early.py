"""Imports what a process's first fused graph or task needs before somebody waits for it.

Schedulers and workers do so as they start. Otherwise it is done while the first graph is waited
for, first by the scheduler, then by the workers, and takes half a second where LLVM has to be asked
for the kind of processor, too.

A program that switches fusion on has them imported by a thread, while it makes its arrays. What two
threads import at once may be seen half made where modules import each other, as those of
``dask.array`` do: the thread waits until that is imported, and what it imports then has no cycle,
of modules and of the packages that they are in (`tests/graph/test_early.py`).
"""

from __future__ import annotations

import importlib
import os
import sys
import threading

from gpusched import config

GRAPHS = "gpusched.graph.frontends.fused_expressions", "gpusched.graph.optimisation"
"""What the first graph needs."""
TASKS = "gpusched.graph.program", "gpusched.graph.safety.interpreter"
"""What the first task needs, with functions of the user's too."""

has_begun = False
"""Whether this process's thread was started, or never will be."""
has_graph = False
"""Whether this process has a graph to fuse: the thread imports nothing more, as that may go on."""


def prepare_for_graphs() -> None:
    """Import what graphs are fused with, if the configuration says so."""
    if config.get("fusion.import-early"):
        _import(GRAPHS)


def prepare_for_tasks() -> None:
    """Import what fused tasks run with, and get to know the processor; see `prepare_for_graphs`."""
    if config.get("fusion.import-early"):
        _import(TASKS)
        from gpusched.store import emitters

        emitters.folder_name()


def begin() -> None:
    """Start the thread that prepares for both, once ``dask.array`` is imported.

    Notes
    -----
    Thread-safe: of two threads, both import the same.
    """
    global has_begun
    if has_begun or "dask.array" not in sys.modules:
        return
    has_begun = True
    if not config.get("fusion.import-early"):
        return
    # No daemon: Python ends when it has ended, and not in the middle of an import.
    thread = threading.Thread(target=_prepare, name="gpusched-imports")
    try:
        thread.start()
    except RuntimeError:
        return  # Python ends, or has no threads here: the first graph imports them.
    # The locks of what is imported would stay locked in the new process.
    os.register_at_fork(before=thread.join)


def _prepare() -> None:
    for name in ("dask.array", *GRAPHS, *TASKS):
        if not has_graph:
            _import((name,))
    from gpusched.store import emitters, kernelfiles

    # Where nothing is compiled, the first task needs no key of a kernel. The processor is part of
    # keys, too, but LLVM may have to be asked for it, which has modules that import each other.
    if not (has_graph or kernelfiles.is_empty()):
        emitters.toolchain()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
