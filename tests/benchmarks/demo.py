"""`make demo` with an empty kernel cache, once more, and without fusion, in turns.

`python -m tests.benchmarks.demo` prints what each takes as a whole and while it computes, as the
program itself measures that, and what the first run's summary says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from tests.benchmarks import page, report
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
SCRIPT = "docs/examples/terrain.py"
FIRST, AGAIN, PLAIN = "first run", "second run", "first run with --no-fuse"
"""A second run begins when the compile service has done what the first has left to it."""
LONGEST = 600.0
"""Seconds that one run may take."""
_COMPUTING = re.compile(r"chunks, ([\d.]+) s")


@dataclass(frozen=True)
class Run:
    """What one run took and said."""

    whole: float
    """Seconds from its start to its end."""
    computing: float
    """Seconds that the program says its computation took."""
    summary: str
    compiling: float = 0.0
    """Seconds that the compile service goes on after its end."""
    made: dict[str, float] = field(default_factory=dict)
    """Seconds of processor time that the service has spent by then, by kernel."""


def measure(repeat: int) -> dict[str, list[Run]]:
    """Return so many runs of each kind; those with and without fusion take turns."""
    found: dict[str, list[Run]] = {FIRST: [], AGAIN: [], PLAIN: []}
    order = random.Random(0)
    for _ in range(repeat):
        for kinds in order.sample(((FIRST, AGAIN), (PLAIN,)), 2):
            with tempfile.TemporaryDirectory(prefix="gpusched-demo-") as folder:
                for kind in kinds:
                    done = run(Path(folder), ["--no-fuse"] if kind == PLAIN else [])
                    found[kind].append(replace(done, **_service(folder, "waited()")))
                _service(folder, "client.stop()")
    return found


def run(folder: Path, options: list[str]) -> Run:
    """Run the demo on a machine that knows what is in a folder.

    Raises
    ------
    RuntimeError
        If it fails, with what it wrote.
    """
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpusched", "run", *options, SCRIPT, "--output", f"{folder}/out"],
        env=_environment(str(folder)), capture_output=True, text=True, cwd=ROOT, timeout=LONGEST,
    )  # fmt: skip
    whole = perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"the demo ended with status {done.returncode}:\n{done.stderr}")
    (computing,) = _COMPUTING.findall(done.stdout)
    _, _, summary = done.stderr.rpartition("gpusched: ")
    return Run(whole, float(computing), f"gpusched: {summary}".rstrip())


def _environment(folder: str) -> dict[str, str]:
    Path(folder, "run").mkdir(mode=0o700, exist_ok=True)
    return os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "XDG_RUNTIME_DIR": f"{folder}/run"}


def _service(folder: str, what: str) -> dict[str, Any]:
    """Return what a call gives in a process that has the same compile service."""
    code = (
        "import json; from gpusched.store.service import client\n"
        f"from tests.benchmarks.demo import waited; print(json.dumps({what}))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=_environment(folder), check=True,
                          capture_output=True, cwd=ROOT)  # fmt: skip
    return dict(json.loads(done.stdout) or {})


def waited() -> dict[str, Any]:
    """Wait until the compile service has nothing to do; return how long, and what it has made."""
    from gpusched.store.service import client

    started = perf_counter()
    wait_for(lambda: not (client.queued_names() or client.place().left.exists()))
    return {"compiling": perf_counter() - started, "made": client.made()}


def table(found: dict[str, list[Run]]) -> str:
    """Return medians of seconds, as Markdown has it, and the last summary of a first run."""
    rows = ["| | whole, s | computing, s |", "| --- | --- | --- |"]
    for kind, runs in found.items():
        whole, computing = (median(values) for values in zip(*map(_seconds, runs), strict=True))
        rows.append(f"| {kind} | {whole:.1f} | {computing:.1f} |")
    first, again = found[FIRST][-1], found[AGAIN][-1]
    after = median(each.compiling for each in found[FIRST])
    made = f"{_made(first)} of processor time, and {_made(again)} with a second run's"
    rows += ["", f"The compile service is done {after:.1f} s after a first run's end: {made}."]
    for kind, each in (("first", first), ("second", again)):
        rows += ["", f"What a {kind} run says at its end:", "", "```", each.summary, "```"]
    return "\n".join(rows)


def _made(run: Run) -> str:
    return f"{len(run.made)} kernels in {sum(run.made.values()):.1f} s"


def _seconds(found: Run) -> tuple[float, float]:
    return found.whole, found.computing


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.demo", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table there")
    options = parser.parse_args(arguments)
    text = table(measure(options.repeat))
    header = report.header("tests.benchmarks.demo", arguments)
    page.show(f"{text}\n\n{header}", options.write, "tests.benchmarks.demo")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
