"""Programs larger than memory: ``python -m tests.benchmarks.memory [--limit '500 MB']``.

Two workers with a small limit each compute programs of data that is several times both limits
together, on a cluster of gpusched (with admission, and without) and on one of distributed, each run
on a cluster of its own in a process of its own, which is ended if it does not end in time. Shown
are the seconds, or why it did not finish; processes that had to be started again; the largest
resident set of any worker ever, as a share of the limit; what a worker's ledger had committed at
most, what `explain` says that one takes at most, before anything runs, and how far that is from the
resident set (gpusched with admission); and bytes written to disk.
Where this machine has memory cgroups for us to make, each worker is in one of its own, so that the
kernel ends whoever exceeds its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import psutil
from dask.utils import format_bytes, parse_bytes

from tests.benchmarks import report
from tests.benchmarks.memory.faults import FAULTS, VARIABLE
from tests.benchmarks.memory.groups import groups, hierarchy
from tests.benchmarks.memory.programs import PROGRAMS
from tests.benchmarks.memory.row import SYSTEMS, Outcome, Request
from tests.benchmarks.memory.watch import Watch
from tests.waiting import is_tracker

_STARTING = 60
"""Seconds that a cluster has to start, and to close."""
_KILL_AT = 0.05
"""Share of its limit that a worker's program takes when it is killed, where that is the fault."""
_COLUMNS = (
    "program", "on", "finished", "restarts", "peak, of the limit", "committed", "predicted",
    "of the peak", "written",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What became of a program, and what its workers' processes took."""

    request: Request
    outcome: Outcome
    restarts: int
    ended: int
    """Processes that the kernel ended, of those that were started again."""
    resident: int
    written: int

    def __str__(self) -> str:
        request, found = self.request, self.outcome
        planned = found.committed > 0
        cells = (
            request.program,
            request.system,
            f"{found.seconds:.1f} s" if found.outcome == "finished"
            else f"{found.outcome} after {found.seconds:.0f} s",
            f"{self.restarts} ({self.ended} by the kernel)" if self.ended else str(self.restarts),
            f"{self.resident / request.limit:.0%}",
            f"{found.committed / request.limit:.0%}" if planned else "",
            f"{found.predicted / request.limit:.0%}" if found.predicted else found.unexplained,
            f"{found.predicted / self.resident:.0%}" if found.predicted and self.resident else "",
            format_bytes(self.written),
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def run(request: Request) -> Row:
    """Run one program on one cluster; returns in any case, and leaves no process."""
    command = [sys.executable, "-m", "tests.benchmarks.memory.row", json.dumps(asdict(request))]
    with (
        groups(request.limit) as made,
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, VARIABLE: request.fault, **made.environment},
        ) as process,  # fmt: skip
        Watch(psutil.Process(process.pid), _killer(request)) as watch,
        _ended(watch),
    ):
        try:
            told, _ = process.communicate(timeout=request.patience + 2 * _STARTING)
            errors.seek(0)
            outcome = Outcome(**json.loads(told)) if told else _failed(errors.read())
        except subprocess.TimeoutExpired:
            outcome = Outcome("no answer", request.patience)
    restarts = max(0, watch.workers - request.workers)
    written = sum(watch.written.values())
    resident = max(watch.resident, outcome.resident)
    return Row(request, outcome, restarts, made.ended, resident, written)


def _failed(errors: str) -> Outcome:
    raise RuntimeError(f"the program's process ended without an answer:\n{errors[-4000:]}")


@contextlib.contextmanager
def _ended(watch: Watch) -> Iterator[None]:
    """End a process and all that it has started, in the end."""
    try:
        yield
    finally:
        found = list(watch.processes)
        with contextlib.suppress(psutil.Error):
            found += [watch.root, *watch.root.children(recursive=True)]
        for process in found:
            # A tracker of semaphores ends by itself, once it has removed those of the others.
            with contextlib.suppress(psutil.Error):
                if not is_tracker(process):
                    process.kill()


def _killer(request: Request) -> Callable[[Watch], None]:
    """Return what kills a worker once, in the middle, where that is the fault."""
    killed, first = request.fault != "killed", 0

    def look(watch: Watch) -> None:
        nonlocal killed, first
        if killed or not request.begun.exists():
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            now = watch.processes[0].memory_info().rss
            # What a worker takes when it starts depends on what else is installed.
            first = first or now
            if now > first + _KILL_AT * request.limit:
                killed = True
                watch.processes[0].kill()

    return look


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if results differ."""
    options = _parser().parse_args(arguments)
    _print_head(options, arguments)
    differing = []
    for program in options.only:
        values = []
        for system in options.systems:
            with tempfile.TemporaryDirectory(prefix="gpusched-memory-") as folder:
                row = run(_request(options, program, system, folder))
            print(row, flush=True)
            if row.outcome.value is not None:
                values.append(row.outcome.value)
        if not all(math.isclose(value, values[0], rel_tol=1e-6) for value in values):
            differing.append(f"results differ: {program}: {values}")
    print("\n".join(["", *differing]))
    return 1 if differing else 0


def _print_head(options: argparse.Namespace, arguments: list[str]) -> None:
    print(report.header("tests.benchmarks.memory", arguments))
    print(
        f"\n{options.workers} workers of {options.limit} and {options.threads} threads each, data "
        f"of {options.factor:g} times that in chunks of {options.chunk}; fault: {options.fault}; "
        f"limits {'in a cgroup for each worker' if hierarchy() else 'of the cluster alone'}\n"
    )
    print(f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|")


def _request(options: argparse.Namespace, program: str, system: str, folder: str) -> Request:
    limit = parse_bytes(options.limit)
    return Request(
        program=program,
        system=system,
        workers=options.workers,
        threads=options.threads,
        limit=limit,
        total=int(options.factor * options.workers * limit),
        chunk=parse_bytes(options.chunk),
        patience=options.patience,
        folder=folder,
        fault=options.fault,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.benchmarks.memory")
    parser.add_argument("--limit", default="500 MB", help="of each worker")
    parser.add_argument("--factor", type=float, default=5, help="data by all limits together")
    parser.add_argument("--chunk", default="16 MiB", help="bytes of a chunk")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of each worker")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--patience", type=float, default=600, help="seconds for each")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
