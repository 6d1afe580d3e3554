"""Runs every part of the tests but the nightly ones, and writes down that it did.

``python -m tests.everything`` is ``make test-all``. It prints which share of the package's lines
and branches the tests reached. ``--shard 2/4`` runs the second of four shares of the parts, each on
a machine of its own, and writes nothing down.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import folder_coverage

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/verification.md"

PARTS = (
    "test-processes",
    "test-exhaustive",
    "test-peers",
    "test",
    "test-models",
    "test-cuda",
    "test-gpu",
    "test-gpu-chunks",
    "test-interop",
    "check",
    "docs",
)
"""Makefile's targets, the longest first."""

MEASURED = "ARGS=--cov --cov-append --cov-report="
"""Has a part that runs pytest add to what ``.coverage`` says has been reached."""

_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
_LAST_LINE = re.compile(r"^=* ?(?:\d+ \w+(?:, )?)+.* in [\d.]+s")


@dataclass(frozen=True)
class Outcome:
    """What came of one part."""

    part: str
    status: int
    """The exit code of make."""
    seconds: float
    counts: dict[str, int]
    """Numbers of tests by "passed", "failed", "skipped" and "error"."""


def share(parts: tuple[str, ...], shard: str) -> list[str]:
    """Return the parts of one shard.

    Examples
    --------
    >>> share(("a", "b", "c"), "1/2"), share(("a", "b", "c"), "2/2")
    (['a', 'c'], ['b'])
    """
    number, _, count = shard.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise SystemExit(f"--shard {shard}: give two numbers, such as 2/4")
    return list(parts[int(number) - 1 :: int(count)])


def run(part: str) -> Outcome:
    """Run one part, showing what it prints."""
    started = time.monotonic()
    print(f"\n=== make {part}", flush=True)
    counts: dict[str, int] = {}
    command = ["make", "--no-print-directory", part]
    if part.startswith("test"):
        command.append(MEASURED)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        for line in made.stdout:
            print(line, end="", flush=True)
            for kind, count in counted(line).items():
                counts[kind] = counts.get(kind, 0) + count
    return Outcome(part, made.returncode, time.monotonic() - started, counts)


def counted(line: str) -> dict[str, int]:
    """Return the numbers in the last line of a run of pytest; none of any other line.

    Examples
    --------
    >>> counted("====== 2 failed, 31 passed, 4 skipped in 12.21s ======")
    {'failed': 2, 'passed': 31, 'skipped': 4}
    >>> counted("collected 31 items")
    {}
    """
    if not _LAST_LINE.match(line):
        return {}
    return {kind: int(count) for count, kind in _COUNTS.findall(line)}


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes as a table of text."""
    lines = []
    for one in outcomes:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(one.counts.items()))
        word = "ok" if one.status == 0 else f"FAILED ({one.status})"
        lines.append(f"{one.part:<16}{word:<12}{one.seconds / 60:6.1f} min  {counts}")
    return "\n".join(lines)


def reached(counts: Mapping[str, int]) -> str:
    """Return the shares of lines and branches that the tests reached.

    Examples
    --------
    >>> reached({"num_statements": 8, "covered_lines": 7, "num_branches": 4, "covered_branches": 3})
    '87.5% of lines, 75.0% of branches'
    """
    lines = counts["covered_lines"] / counts["num_statements"]
    branches = counts["covered_branches"] / counts["num_branches"]
    return f"{lines:.1%} of lines, {branches:.1%} of branches"


def row(outcomes: list[Outcome], commit: str, coverage: str) -> str:
    """Return the line that is written down.

    Date, commit, machine, counts, minutes, coverage, and the parts that failed.
    """
    total = {kind: sum(o.counts.get(kind, 0) for o in outcomes) for kind in ("passed", "skipped")}
    failed = [o.part for o in outcomes if o.status]
    minutes = sum(o.seconds for o in outcomes) / 60
    parts = ", ".join(f"{o.part.removeprefix('test-')} {o.seconds / 60:.1f}" for o in outcomes)
    cells = (
        datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        commit,
        machine(),
        f"{total['passed']:,} passed, {total['skipped']:,} skipped",
        f"{minutes:.0f} ({parts})",
        coverage,
        ", ".join(failed) or "none",
    )
    return f"| {' | '.join(cells)} |\n"


def machine() -> str:
    """Return processor, cores and Python's version."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = models[0] if models else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def commit(checkout: Path = ROOT) -> str:
    """Return the short name of the commit that is checked out, and whether files differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (" and changes" if git("status", "-s") else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", metavar="K/N", help="run the K-th of N shares of the parts")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="run these parts")
    chosen = parser.parse_args()
    parts = chosen.only or (share(PARTS, chosen.shard) if chosen.shard else list(PARTS))
    before = commit()
    subprocess.run([sys.executable, "-m", "coverage", "erase"], cwd=ROOT, check=True)
    outcomes = [run(part) for part in parts]
    if any(part.startswith("test") for part in parts):
        folders = folder_coverage.by_folder(folder_coverage.summaries(ROOT / ".coverage"))
        print(f"\n{folder_coverage.table(folders)}")
    print(f"\n{summary(outcomes)}")
    if not chosen.only and not chosen.shard:
        with PAGE.open("a") as page:
            page.write(row(outcomes, before, reached(folders["all"])))
    return int(any(outcome.status for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
