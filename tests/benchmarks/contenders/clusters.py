"""The clusters of those who take part on one: a worker process each, with all the threads.

One worker, not one per core: results then need no sending between workers, so that what is timed is
the scheduler and the chunks' work, and each program has the same threads as on dask's threads.
First calls are measured on more. Both clusters stay until the end; an idle one costs next to
nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from tests.benchmarks import names
from tests.benchmarks.contenders.base import THREADS, Case, Prepared
from tests.benchmarks.works.base import several

workers = 1
"""Processes of each cluster, which share the threads; read when it is started."""

_CLIENTS: dict[str, Client] = {}
_OPEN = ExitStack()


def client(kind: str) -> Client:
    """Return the client of the `dask` or the `gpusched` cluster, which is started once."""
    if kind not in _CLIENTS:
        cluster = _OPEN.enter_context(_plain() if kind == "dask" else _fused())
        _CLIENTS[kind] = _OPEN.enter_context(Client(cluster, set_as_default=False))
    return _CLIENTS[kind]


def close() -> None:
    """Stop all clusters."""
    _CLIENTS.clear()
    _OPEN.close()


def _plain() -> Any:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=max(1, THREADS // workers),
        memory_limit=0,
        scheduler_kwargs={"dashboard": False},
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
        silence_logs=50,
    )


def _fused() -> Any:
    """Start gpusched's cluster; its workers fuse, this process only where it is asked to."""
    from gpusched import Cluster, disable

    cluster = Cluster(workers, max(1, THREADS // workers), gpus=0, memory_limit=0, silence_logs=50)
    disable()
    return cluster


def prepare(case: Case, kind: str) -> Prepared:
    """Run the program on a cluster; its results stay on the worker."""
    work, xp, user = case.work, names.dask(), client(kind)
    program = work.programs.get(kind) or work.program_of("dask")
    arrays = [
        scattered(user, x, chunks) if x.dtype.kind == "f" else x
        for x, chunks in zip(case.inputs, case.chunks(), strict=True)
    ]

    def run() -> Any:
        with user.as_current():
            results = user.persist(several(program(xp, *arrays)))
            wait(results)
        return results

    def to_numpy(results: Any) -> list[np.ndarray]:
        return [np.asarray(x) for x in user.gather(user.compute(results))]

    return Prepared(run, to_numpy)


def scattered(user: Client, x: np.ndarray, chunks: tuple[int, ...]) -> Any:
    """Return the array as a dask array whose chunks are on the workers."""
    layout = da.core.normalize_chunks(chunks, x.shape, dtype=x.dtype)
    pieces = [np.ascontiguousarray(x[place]) for place in da.core.slices_from_chunks(layout)]
    places = np.empty([len(lengths) for lengths in layout], object)
    for index, piece, future in zip(
        np.ndindex(places.shape), pieces, user.scatter(pieces), strict=True
    ):
        places[index] = da.from_delayed(future, piece.shape, x.dtype)
    with user.as_current():
        array = user.persist(da.block(places.tolist()))
        wait(array)
    return array
