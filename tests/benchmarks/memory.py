"""Programs larger than memory: ``python -m tests.benchmarks.memory [--limit '500 MB']``.

Two workers with a small limit each compute programs of data that is several times both limits
together, on a cluster of gpusched (with admission, and without) and on one of distributed, each run
on a cluster of its own. Shown are the seconds, or why it did not finish; processes that had to be
started again; the largest resident set of any worker ever, as a share of the limit; what a
worker's ledger had committed at most (gpusched with admission); and bytes written to disk.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import Client, LocalCluster, Worker

from gpusched import Cluster
from tests.benchmarks import report

WORKERS, THREADS = 2, 2
CHUNK = 16 << 20
_PAUSE = 0.02


@dataclass
class Sizes:
    """Of one program's data: a square of float64 in bands of rows."""

    total: int
    side: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.side = int((self.total / 8) ** 0.5)
        self.rows = max(1, CHUNK // (8 * self.side))

    def bands(self) -> da.Array:
        """Return random rows."""
        shape = (self.side, self.side)
        return da.random.default_rng(0).random(shape, chunks=(self.rows, self.side))

    def blocks(self) -> da.Array:
        """Return random blocks."""
        edge = int((CHUNK / 8) ** 0.5)
        return da.random.default_rng(0).random((self.side, self.side), chunks=(edge, edge))


def rechunk(sizes: Sizes, folder: Path) -> Any:
    """Turn bands of rows into bands of columns."""
    x = sizes.bands().rechunk((sizes.side, sizes.rows), method="tasks")
    return (x / x.max(axis=0)).sum()


def transpose(sizes: Sizes, folder: Path) -> Any:
    """Add an array to its transpose: each block is needed twice, far apart."""
    x = sizes.blocks()
    return (x + x.T).std()


def product(sizes: Sizes, folder: Path) -> Any:
    """Multiply a tall matrix by itself."""
    columns = 256
    rows = CHUNK // (8 * columns)
    x = da.random.default_rng(0).random(
        (sizes.total // (8 * columns), columns), chunks=(rows, columns)
    )
    return (x - x.mean(axis=0)).T @ x


def overlap(sizes: Sizes, folder: Path) -> Any:
    """Smooth with a stencil across chunks."""
    x = sizes.blocks()
    return x.map_overlap(_smooth, depth=2, boundary="reflect").max()


def _smooth(x: Any) -> Any:
    found = x.copy()
    found[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return found


def standardised(sizes: Sizes, folder: Path) -> Any:
    """Store an array less its mean by its deviation, for which it is needed twice."""
    x = sizes.blocks()
    return ((x - x.mean()) / x.std()).to_zarr(str(folder / "stored.zarr"), compute=False)


def reductions(sizes: Sizes, folder: Path) -> Any:
    """Reduce an array in many ways at once."""
    x = sizes.blocks()
    found = [x.sum(), x.max(), x.std(axis=0), (x - x.mean()).max(), (x.T * x).sum(axis=1)]
    return dask.delayed(list)(found)


PROGRAMS: dict[str, Callable[[Sizes, Path], Any]] = {
    each.__name__: each for each in (rechunk, transpose, product, overlap, standardised, reductions)
}


@contextlib.contextmanager
def _cluster(system: str, limit: int, folder: Path) -> Iterator[Any]:
    settings: dict[str, Any] = {"temporary-directory": str(folder)}
    settings["gpusched.memory.admission"] = system == "admission"
    with dask.config.set(settings):
        if system == "distributed":
            with LocalCluster(
                WORKERS, threads_per_worker=THREADS, memory_limit=limit, dashboard_address=None
            ) as found:
                yield found
        else:
            with Cluster(WORKERS, THREADS, gpus=0, memory_limit=limit) as found:
                yield found


@dataclass
class Watch:
    """What workers' processes take while a program runs."""

    client: Client
    resident: int = 0
    committed: float = 0.0
    processes: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        count = 0
        while not self._end.wait(_PAUSE):
            if count % 25 == 0:
                self._find()
            count += 1
            for pid in self.processes:
                with contextlib.suppress(psutil.Error):
                    self.resident = max(self.resident, most_resident(pid))
                    self.written[pid] = psutil.Process(pid).io_counters().write_bytes

    def _find(self) -> None:
        """Note the workers' processes: children of this process's that listen as workers."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid not in self.processes and "spawn_main" in str(process.cmdline()):
                    self.processes.add(process.pid)


def most_resident(pid: int) -> int:
    """Return the most bytes that a process has ever had in memory, as Linux counts them."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def most_committed(dask_worker: Worker) -> int:
    """Return what a worker's ledger had committed at most."""
    admission = getattr(dask_worker, "admission", None)
    return 0 if admission is None else int(admission.ledger.most)


def run(program: str, system: str, sizes: Sizes, limit: int, patience: float) -> str:
    """Return a row of the table."""
    with (
        tempfile.TemporaryDirectory(prefix="gpusched-memory-") as name,
        _cluster(system, limit, Path(name)) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        started = perf_counter()
        with Watch(client) as watch:
            try:
                future = client.compute(PROGRAMS[program](sizes, Path(name)))
                future.result(timeout=patience)
                outcome = f"{perf_counter() - started:.1f} s"
            except Exception as error:  # noqa: BLE001  whatever ends it belongs in the table
                outcome = f"{type(error).__name__} after {perf_counter() - started:.0f} s"
        # Workers that are being ended and started again would not answer.
        planned = system == "admission"
        committed = max(client.run(most_committed).values(), default=0) if planned else 0
        restarts = max(0, len(watch.processes) - WORKERS)
        shown = f"{committed / limit:.0%}" if committed else ""
        written = format_bytes(sum(watch.written.values()))
        return (
            f"| {program} | {system} | {outcome} | {restarts} | {watch.resident / limit:.0%} "
            f"| {shown} | {written} |"
        )


SYSTEMS = "admission", "gpusched", "distributed"


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.benchmarks.memory")
    parser.add_argument("--limit", default="500 MB", help="of each worker")
    parser.add_argument("--factor", type=float, default=5, help="data by both limits together")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--patience", type=float, default=600, help="seconds for each")
    options = parser.parse_args(arguments)
    limit = parse_bytes(options.limit)
    sizes = Sizes(int(options.factor * WORKERS * limit))
    print(report.header("tests.benchmarks.memory", arguments))
    print(f"\n{WORKERS} workers of {format_bytes(limit)} and {THREADS} threads each, data of "
          f"{format_bytes(sizes.total)} in chunks of {format_bytes(CHUNK)}\n")  # fmt: skip
    print("| program | on | finished | restarts | peak, of the limit | committed | written |")
    print("| --- " * 7 + "|")
    for program in options.only:
        for system in options.systems:
            print(run(program, system, sizes, limit, options.patience), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
