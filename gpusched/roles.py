"""What this process is on a cluster of distributed's: a client, a worker, a scheduler.

A process that has not imported distributed is none of them; none of these functions imports it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import dask

from gpusched.adapters.distributed import scheduler_instances, total_threads

if TYPE_CHECKING:
    from distributed import Client, Worker


def imported(name: str) -> Any:
    """Return a module; None if it is not imported, or still is being: nobody has any of it yet."""
    found = sys.modules.get(name)
    return None if getattr(getattr(found, "__spec__", None), "_initializing", False) else found


def current_client() -> Client | None:
    """Return the client that is the default here; None if there is none.

    Examples
    --------
    >>> from gpusched.roles import current_client
    >>> print(current_client())
    None
    """
    distributed = imported("distributed")
    if distributed is None:
        return None
    try:
        client: Client = distributed.default_client()
    except ValueError:
        return None  # says that there is none
    return client


def computing_client() -> Client | None:
    """Return the client that dask computes with; None where it computes in this process.

    Examples
    --------
    >>> import dask
    >>> from gpusched.roles import computing_client
    >>> with dask.config.set(scheduler="threads"):
    ...     print(computing_client())
    None
    """
    scheduler = dask.config.get("scheduler", None)
    return current_client() if scheduler in (None, "dask.distributed") else None


def current_worker() -> Worker | None:
    """Return the worker whose task this thread runs; None if it runs none.

    Examples
    --------
    >>> from gpusched.roles import current_worker
    >>> print(current_worker())
    None
    """
    distributed = imported("distributed.worker")
    if distributed is None:
        return None
    try:
        worker: Worker = distributed.get_worker()
    except ValueError:
        return None
    return worker


def current_key() -> Any:
    """Return the key of the task that this thread of a worker runs; None if it is not known."""
    worker = sys.modules.get("distributed.worker")
    return getattr(getattr(worker, "thread_state", None), "key", None)


def has_scheduler() -> bool:
    """Return whether a cluster is scheduled in this process."""
    return imported("distributed") is not None and any(True for _ in scheduler_instances())


def cluster_threads() -> int:
    """Return the threads of a cluster that graphs are optimised for here; 0 if there is none.

    A scheduler optimises graphs for its workers, whose machines are not its own; of several in this
    process, the largest cluster counts. A client does so where it is asked to (`dask.optimize`).
    """
    if has_scheduler():
        return max((int(each.total_nthreads) for each in scheduler_instances()), default=0)
    client = computing_client()
    return 0 if client is None else total_threads(client)


def threads() -> int:
    """Return the threads of the cluster that graphs are optimised for here, or of this machine."""
    from dask.system import CPU_COUNT

    return cluster_threads() or int(CPU_COUNT)
