"""How many of torch's own threads a task gets: its share of the cores, as tasks run side by side.

Torch would compute each of them with as many threads as there are cores, which then wait for each
other: on two cores a small network took eight times as long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dask
from dask.system import CPU_COUNT

_changing = threading.Lock()


@contextmanager
def shared(tasks: int) -> Iterator[None]:
    """Have torch compute with this thread's share of the cores.

    Parameters
    ----------
    tasks
        How many tasks the graph has for this model.

    Notes
    -----
    Never with more threads than torch has been told to use; those of the main thread, which runs
    one task after the other, stay as they are.
    """
    import torch

    if threading.current_thread() is threading.main_thread():
        yield
        return
    with _changing:
        own = torch.get_num_threads()
        share = min(own, max(1, int(CPU_COUNT) // min(tasks, _side_by_side())))
        if share != own:
            torch.set_num_threads(share)
            # Torch has a number for each thread, and one for threads to come, which that was, too.
            other = threading.Thread(target=torch.set_num_threads, args=(own,))
            other.start()
            other.join()
    try:
        yield
    finally:
        if share != own:
            torch.set_num_threads(own)


def _side_by_side() -> int:
    """Return how many tasks this process runs at once."""
    distributed = sys.modules.get("distributed.worker")
    if distributed is not None:
        try:
            threads: int = distributed.get_worker().state.nthreads
        except ValueError:
            # Not in a worker's task.
            pass
        else:
            return max(1, threads)
    return int(dask.config.get("num_workers", None) or CPU_COUNT)
