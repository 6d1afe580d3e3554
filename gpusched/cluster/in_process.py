"""Everything in this process: for tests, small data and debugging."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from distributed import Client

from gpusched.cluster.allocation import MemoryLimit
from gpusched.cluster.cluster import Cluster


def local(
    threads: int | None = None,
    *,
    memory_limit: MemoryLimit | None = None,
    fuse: bool | None = None,
) -> AbstractContextManager[Client]:
    """Run a scheduler and one worker in this process, without sockets, as the default client.

    Parameters
    ----------
    threads : int, optional
        Threads of the worker. Default: one per core.
    memory_limit : int, float or str, optional
        Host memory of the worker, as in :class:`gpusched.Cluster`.
    fuse : bool, optional
        Whether fusion is on within the block.

    Examples
    --------
    >>> import dask.array as da
    >>> import gpusched
    >>> with gpusched.local() as client:
    ...     int(da.arange(10, chunks=5).sum().compute())
    45
    """
    return _running(threads, memory_limit, fuse)


@contextmanager
def _running(
    threads: int | None, memory_limit: MemoryLimit | None, fuse: bool | None
) -> Iterator[Client]:
    with (
        Cluster(1, threads, processes=False, memory_limit=memory_limit, fuse=fuse) as cluster,
        Client(cluster) as client,
    ):
        yield client
