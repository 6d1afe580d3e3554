"""`make demo` with an empty kernel cache, once more, and without fusion, in turns.

`python -m tests.benchmarks.demo` prints what each takes as a whole and while it computes, as the
program itself measures that, and what the first run's summary says.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.benchmarks import page, report

ROOT = Path(__file__).parents[2]
SCRIPT = "docs/examples/terrain.py"
FIRST, AGAIN, PLAIN = "first run", "second run", "first run with --no-fuse"
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


def measure(repeat: int) -> dict[str, list[Run]]:
    """Return so many runs of each kind; those with and without fusion take turns."""
    found: dict[str, list[Run]] = {FIRST: [], AGAIN: [], PLAIN: []}
    order = random.Random(0)
    for _ in range(repeat):
        for kinds in order.sample(((FIRST, AGAIN), (PLAIN,)), 2):
            with tempfile.TemporaryDirectory(prefix="gpusched-demo-") as folder:
                for kind in kinds:
                    found[kind].append(run(Path(folder), ["--no-fuse"] if kind == PLAIN else []))
                _stop_service(folder)
    return found


def run(folder: Path, options: list[str]) -> Run:
    """Run the demo on a machine that knows what is in a folder."""
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpusched", "run", *options, SCRIPT, "--output", f"{folder}/out"],
        env=_environment(str(folder)), check=True, capture_output=True, text=True, cwd=ROOT,
        timeout=LONGEST,
    )  # fmt: skip
    whole = perf_counter() - started
    (computing,) = _COMPUTING.findall(done.stdout)
    _, _, summary = done.stderr.rpartition("gpusched: ")
    return Run(whole, float(computing), f"gpusched: {summary}".rstrip())


def _environment(folder: str) -> dict[str, str]:
    Path(folder, "run").mkdir(mode=0o700, exist_ok=True)
    return os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "XDG_RUNTIME_DIR": f"{folder}/run"}


def _stop_service(folder: str) -> None:
    code = "from gpusched.store.service import client; client.stop()"
    subprocess.run([sys.executable, "-c", code], env=_environment(folder), check=True)


def table(found: dict[str, list[Run]]) -> str:
    """Return medians of seconds, as Markdown has it, and the last summary of a first run."""
    rows = ["| | whole, s | computing, s |", "| --- | --- | --- |"]
    for kind, runs in found.items():
        whole, computing = (median(values) for values in zip(*map(_seconds, runs), strict=True))
        rows.append(f"| {kind} | {whole:.1f} | {computing:.1f} |")
    last = found[FIRST][-1].summary
    return "\n".join([*rows, "", "What a first run says at its end:", "", "```", last, "```"])


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
