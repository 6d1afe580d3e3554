"""How worker processes start: without the user's script, with the terminal's signals blocked."""

from __future__ import annotations

import multiprocessing.resource_tracker
import multiprocessing.spawn
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WORKER = "Dask Worker process"
"""How distributed's nanny names the processes it starts."""

_OF_TERMINALS = {signal.SIGINT, signal.SIGHUP}


@contextmanager
def workers_without_main() -> Iterator[None]:
    """Keep worker processes from importing ``__main__``, which is how Python spawns by default.

    A script run by ``gpusched run`` needs no ``if __name__ == "__main__"`` that way: a worker
    restarted while the script runs would execute it a second time. Functions defined in the
    script reach the workers all the same, because cloudpickle sends those of ``__main__`` by
    value. Processes that the script itself spawns are not affected.
    """
    original = multiprocessing.spawn.get_preparation_data

    def preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        if name.startswith(_WORKER):
            data.pop("init_main_from_path", None)
            data.pop("init_main_from_name", None)
        return data

    multiprocessing.spawn.get_preparation_data = preparation_data
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = original


@contextmanager
def workers_without_interrupts() -> Iterator[None]:
    """Block a terminal's signals in every thread and process that this thread starts meanwhile.

    A terminal sends Ctrl-C and its own end to the whole group of processes; only the one that runs
    the script must react. The mask is inherited, so it holds for workers restarted later. This
    thread gets what arrived meanwhile when the block ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        # Starting multiprocessing's resource tracker unblocks Ctrl-C in the thread that does it,
        # so it starts here rather than in the thread that starts the workers.
        multiprocessing.resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
