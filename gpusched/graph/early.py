"""Imports what a process's first fused graph or task needs before somebody waits for it.

Schedulers and workers do so as they start, and programs as they switch fusion on. Otherwise it is
done while the first graph is waited for, first by the scheduler, then by the workers, and takes
half a second where LLVM has to be asked for the kind of processor, too.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpusched import config
from gpusched.roles import imported

GRAPHS = "gpusched.graph.frontends.fused_expressions", "gpusched.graph.optimisation"
"""What the first graph needs."""
TASKS = tuple(f"gpusched.graph.{name}" for name in (
    "programs.program", "programs.program_tokens", "safety.check",
))  # fmt: skip
"""What the first task needs, with functions of the user's too."""

is_prepared = False
"""Whether a program that has switched fusion on has been prepared, in this process."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's collector of garbage in cycles while much is made that stays.

    It would go through all of that again and again. Graphs have no cycles, and looking for
    some takes a third to half of the time; of importing what fusion needs, a fifth.

    Examples
    --------
    >>> import gc
    >>> from gpusched.graph.early import collector_paused
    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def prepare_for_graphs() -> None:
    """Import what graphs are fused with, if the configuration says so."""
    if config.get("fusion.import-early"):
        _import(GRAPHS)


def prepare_for_tasks() -> None:
    """Import what fused tasks run with, and get to know the processor; see `prepare_for_graphs`."""
    if config.get("fusion.import-early"):
        _import(TASKS)
        _prepare_for_kernels()


def prepare() -> None:
    """Prepare for both, in a program that has imported ``dask.array``; others have no arrays yet.

    Notes
    -----
    Thread-safe: of two threads, both import the same.
    """
    global is_prepared
    # While they are being imported, what is here would see them half made.
    if is_prepared or imported("dask.array") is None:
        return
    is_prepared = True
    if not config.get("fusion.import-early"):
        return
    _import(GRAPHS + TASKS)
    from gpusched.store import kernelfiles

    # Where nothing is compiled, the first task needs no key of a kernel, and LLVM would have to be
    # asked for the processor.
    if not kernelfiles.is_empty():
        _prepare_for_kernels()


def _prepare_for_kernels() -> None:
    """Get to know the processor, and import what launches on GPUs if CuPy has been imported."""
    from gpusched.store import emitters

    emitters.folder_name()
    if "cupy" in sys.modules:
        from gpusched.backends.cuda import runtime

        runtime.prepare()


def _import(names: tuple[str, ...]) -> None:
    with collector_paused():
        for name in names:
            importlib.import_module(name)
