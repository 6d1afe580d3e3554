"""The counters of all of a cluster's processes, and how they changed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import fields

from distributed import Client

from gpusched.adapters.distributed import run_on_workers
from gpusched.store.statistics import Statistics, statistics

Process = tuple[str, int]
"""A host's name and a process id on it."""


def process_statistics() -> tuple[Process, Statistics]:
    """Return this process's identity and its counters."""
    return (socket.gethostname(), os.getpid()), statistics()


def gather(client: Client, timeout: float = 10) -> dict[Process, Statistics]:
    """Return the counters of this process and of every worker process that answers.

    Workers that share a process, as in a cluster without processes, are counted once. Raises
    `TimeoutError` if the scheduler does not answer in time.

    Parameters
    ----------
    client
        A client that is not asynchronous.
    timeout
        Seconds to wait for the workers.

    Examples
    --------
    >>> import gpusched
    >>> from gpusched.cluster.statistics import gather
    >>> with gpusched.local() as client:
    ...     len(gather(client))
    1
    """
    answers = run_on_workers(client, process_statistics, on_error="ignore", timeout=timeout)
    counted = dict([process_statistics()])
    # Once per process: the workers of a cluster without processes all report the same one.
    counted.update(answers.values())
    return counted


def difference(
    after: Mapping[Process, Statistics], before: Mapping[Process, Statistics]
) -> Statistics:
    """Return what was counted between two gatherings; processes new in ``after`` count fully."""
    total = Statistics()
    for process, counted in after.items():
        total = total.merge(_subtract(counted, before.get(process, Statistics())))
    return total


def _subtract(later: Statistics, earlier: Statistics) -> Statistics:
    return Statistics(
        **{f.name: getattr(later, f.name) - getattr(earlier, f.name) for f in fields(Statistics)}
    )
