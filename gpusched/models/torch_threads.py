"""How many of torch's own threads a task gets: its share of the cores, as tasks run side by side.

Torch would compute each of them with as many threads as there are cores, which then wait for each
other: on two cores a small network took eight times as long.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dask
from dask.system import CPU_COUNT

from gpusched import forks
from gpusched.roles import current_worker

_changing = forks.lock()


@contextmanager
def shared(tasks: int) -> Iterator[None]:
    """Have torch compute with this thread's share of the cores.

    Notes
    -----
    Never with more threads than torch has been set to use. The main thread of a program runs one
    task after the other, and keeps its number.

    Torch has one number for each thread and one for threads that have not used it yet, and sets
    both at once. The second is put back at once; a thread that uses torch for the first time in
    between keeps the share, and what somebody sets while a task runs holds for new threads until
    its end.
    """
    import torch

    if _is_alone():
        yield
        return
    with _changing:
        own = torch.get_num_threads()
        share = min(own, max(1, int(CPU_COUNT) // min(tasks, _side_by_side())))
        others = _set_here(share) if share != own else own
    try:
        yield
    finally:
        if share != own:
            with _changing:
                if own == others:
                    torch.set_num_threads(own)
                else:
                    _set_here(own)


def _set_here(number: int) -> int:
    """Set the number of this thread alone; return that of threads to come, which stays."""
    import torch

    found: list[int] = []
    known, changed = threading.Event(), threading.Event()

    def keep() -> None:
        found.append(torch.get_num_threads())
        known.set()
        changed.wait()
        torch.set_num_threads(found[0])

    other = threading.Thread(target=keep)
    other.start()
    known.wait()
    try:
        torch.set_num_threads(number)
    finally:
        changed.set()
        other.join()
    return found[0]


def _is_alone() -> bool:
    """Return whether this is the main thread of a process that nobody started for tasks."""
    main = threading.current_thread() is threading.main_thread()
    return main and multiprocessing.parent_process() is None


def _side_by_side() -> int:
    """Return how many tasks this process, or all those beside it, run at once."""
    worker = current_worker()
    if worker is not None:
        return max(1, worker.state.nthreads)
    return int(dask.config.get("num_workers", None) or CPU_COUNT)
