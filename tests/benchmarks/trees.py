"""Two checkouts in turns: ``python -m tests.benchmarks.trees OLD NEW softmax:float32 anomaly``.

Each has a process of its own, which runs the works and programs of its own checkout with its own
gpusched; one computes while the other waits. Prints the medians of both, of the clock and of the
processor's time, and the ratios new / old; last the ratio of the least times, which what else runs
on the machine changes least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

RUN = """
import gc, json, os, sys
from time import perf_counter, process_time
import dask, gpusched

def of_work(name, dtype):
    from tests.benchmarks.contenders import load
    from tests.benchmarks.contenders.base import Case
    from tests.benchmarks.works import WORKS
    case = Case.of(WORKS[name], dtype, WORKS[name].elements[dtype])
    return load("gpusched")(case).run

def of_program(name, megabytes):
    from tests.benchmarks.programs import PROGRAMS
    build = PROGRAMS[name](megabytes << 20)
    gpusched.enable()
    dask.config.set(scheduler="threads")
    return lambda: build().compute()

name, _, dtype = sys.argv[1].partition(":")
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
run = of_work(name, dtype) if dtype else of_program(name, int(sys.argv[2]))
with dask.config.set({"gpusched.fusion.tier": "fused"}):  # waits for the kernels
    run()
run()
print("ready", file=answers, flush=True)
for line in sys.stdin:
    gc.collect()
    wall, processor = perf_counter(), process_time()
    result = run()
    times = perf_counter() - wall, process_time() - processor
    del result
    print(json.dumps(times), file=answers, flush=True)
"""
"""What the process of a checkout runs: nothing of it need be known to the older one."""


@dataclass
class Tree:
    """A checkout, what runs in it, and how long that took."""

    folder: Path
    process: subprocess.Popen[str]
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path, cache: str, work: str, megabytes: int) -> Tree:
        """Start the process of a checkout; it compiles into a cache of its own."""
        environment = os.environ | {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-c", RUN, work, str(megabytes)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdin=pipe, stdout=pipe
        )
        return cls(folder, process)

    def answer(self) -> str:
        """Return the next line of the process, or raise if it has ended."""
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise ChildProcessError(
                f"the process of {self.folder} ended with {self.process.wait()}"
            )
        return line

    def time(self) -> None:
        self.process.stdin.write("\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        wall, processor = json.loads(self.answer())
        self.wall.append(wall)
        self.processor.append(processor)

    def end(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def rows(
    folders: list[Path], works: list[str], rounds: int, megabytes: int, caches: list[str]
) -> Iterator[str]:
    """Yield a line for each work, when it is measured."""
    yield "| work | old, ms | new, ms | wall | processor | least wall |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for work in works:
        with ExitStack() as stack:
            old, new = (
                Tree.start(folder, cache, work, megabytes)
                for folder, cache in zip(folders, caches, strict=True)
            )
            for tree in (old, new):
                stack.callback(tree.end)
                tree.answer()
            for turn in range(rounds):
                for tree in (old, new) if turn % 2 else (new, old):
                    tree.time()
        yield (
            f"| {work} | {median(old.wall) * 1e3:.1f} | {median(new.wall) * 1e3:.1f} "
            f"| {median(new.wall) / median(old.wall):.2f} "
            f"| {median(new.processor) / median(old.processor):.2f} "
            f"| {min(new.wall) / min(old.wall):.2f} |"
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.trees", description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("new", type=Path, help="the one to compare with it")
    parser.add_argument("works", nargs="+", metavar="WORK", help="work:dtype, or a program's name")
    parser.add_argument("--rounds", type=int, default=9, help="timings of each (default 9)")
    parser.add_argument("--megabytes", type=int, default=300,
                        help="size of a program's input (default 300)")  # fmt: skip
    options = parser.parse_args(arguments)
    folders = [options.old.absolute(), options.new.absolute()]
    with tempfile.TemporaryDirectory(prefix="gpusched-trees-") as folder:
        caches = [str(Path(folder) / name) for name in ("old", "new")]
        for row in rows(folders, options.works, options.rounds, options.megabytes, caches):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
