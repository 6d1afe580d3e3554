"""One program on one cluster, in a process of its own: what it says is one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import dask
from dask.core import flatten
from distributed import Client, LocalCluster, Worker

from gpusched import Cluster, enable
from gpusched.adapters.distributed import run_on_workers
from gpusched.inspection.explanation import explain_graph
from gpusched.inspection.fit import described, fit
from gpusched.inspection.gather import wanted_of
from tests.benchmarks.memory.programs import PROGRAMS, Sizes

SYSTEMS = "admission", "gpusched", "distributed"
_ANSWER = 10
"""Seconds that workers have to say what their ledgers had."""
_CLOSING = 20
"""Seconds that a cluster has to close, where workers may be ending and starting."""


@dataclass(frozen=True)
class Request:
    """What is to be run."""

    program: str
    system: str
    workers: int
    threads: int
    limit: int
    """Bytes of each worker."""
    total: int
    """Bytes of the data."""
    chunk: int
    """Bytes of a chunk."""
    patience: float
    """Seconds until it is given up."""
    folder: str
    """Where it may write."""
    fault: str = "none"

    @property
    def begun(self) -> Path:
        """The file that is there once the workers are, and the program begins."""
        return Path(self.folder, "begun")


@dataclass(frozen=True)
class Outcome:
    """What has become of it."""

    outcome: str
    """``"finished"``, or why not."""
    seconds: float
    value: float | None = None
    """The program's number."""
    committed: int = 0
    """The most that a worker's ledger had committed; 0 without one."""
    resident: int = 0
    """The most that a worker's process was seen to take by itself, which has the kernel begin its
    own count again; 0 without a ledger."""
    predicted: int = 0
    """What a worker takes at most, as `explain` says before anything runs; 0 if not known."""
    unexplained: str = ""
    """Why `explain` has failed, if it has."""
    admission: dict[str, float] | None = None
    """What became of its tasks, all workers together."""


def run(request: Request) -> Outcome:
    """Run a program, and give up in time, whatever has become of the workers."""
    folder = Path(request.folder)
    made = PROGRAMS[request.program](Sizes(request.total, request.chunk), folder)
    with _cluster(request, folder) as cluster, Client(cluster) as client:
        client.wait_for_workers(request.workers)
        try:
            predicted, unexplained = _predicted(request, made, client), ""
        except Exception as error:  # noqa: BLE001  whatever ends it belongs in the table
            predicted, unexplained = 0, type(error).__name__
        request.begun.touch()
        started = perf_counter()
        value = None
        try:
            value = float(client.compute(made).result(timeout=request.patience))
            outcome = "finished"
        except TimeoutError:
            outcome = "gave up"
        except Exception as error:  # noqa: BLE001  whatever ends it belongs in the table
            outcome = type(error).__name__
        seconds = perf_counter() - started
        committed, resident, admission = _asked(client, request.system)
        found = Outcome(
            outcome, seconds, value, committed, resident, predicted, unexplained, admission
        )
        _say(found)
        _end_in_time()
    return found


def _predicted(request: Request, made: Any, client: Client) -> int:
    on = described(client)
    if request.system != "admission" or on is None:
        return 0
    with enable():
        wanted = wanted_of(made.__dask_graph__(), list(flatten([made.__dask_keys__()])))
        explanation, _ = explain_graph(wanted)
    return fit(explanation.stages, explanation.totals.kept, on).worker_peak


def _say(found: Outcome) -> None:
    print(json.dumps(asdict(found)), flush=True)


def _end_in_time() -> None:
    """See to it that this process ends: closing waits for workers that may not answer."""
    timer = threading.Timer(_CLOSING, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _asked(client: Client, system: str) -> tuple[int, int, dict[str, float] | None]:
    """Return what the workers that answer say of their ledgers."""
    if system != "admission":
        return 0, 0, None
    told = run_on_workers(client, _ledger, on_error="ignore", timeout=_ANSWER)
    counted = [counters for *_, counters in told.values()]
    together = {key: sum(each[key] for each in counted) for key in (counted or [{}])[0]}
    committed = max((most for most, *_ in told.values()), default=0)
    return committed, max((most for _, most, _ in told.values()), default=0), together


def _ledger(dask_worker: Worker) -> tuple[int, int, dict[str, float]]:
    admission: Any = dask_worker.admission  # type: ignore[attr-defined]
    metrics = admission.metrics()
    counters = ("waited", "wait_seconds", "in_pieces", "refused")
    found = {name: metrics[name] for name in counters}
    return int(admission.ledger.most), int(admission.most_resident), found


@contextlib.contextmanager
def _cluster(request: Request, folder: Path) -> Iterator[Any]:
    settings: dict[str, Any] = {
        "temporary-directory": str(folder),
        "gpusched.memory.admission": request.system == "admission",
        "distributed.worker.preload": ["tests.benchmarks.memory.faults"],
    }
    limits: dict[str, Any] = {"memory_limit": request.limit, "dashboard_address": None}
    with dask.config.set(settings), contextlib.ExitStack() as stack:
        if request.system == "distributed":
            cluster: Any = LocalCluster(
                n_workers=request.workers, threads_per_worker=request.threads, **limits
            )
        else:
            cluster = Cluster(request.workers, request.threads, gpus=0, **limits)
        yield stack.enter_context(cluster)


if __name__ == "__main__":
    run(Request(**json.loads(sys.argv[1])))
