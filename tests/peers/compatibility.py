"""Runs tests of packages that use dask's arrays, plain and fused, and writes the page of them.

``python -m tests.peers.compatibility`` is ``make test-ecosystem``; ``--only flox xgcm`` runs some,
``--missing`` those of which nothing is kept, ``--page`` none, and writes the page of what is kept
in ``compatibility.json``. ``--before /a/checkout`` runs the tests that were run last with the
gpusched of another checkout, whose counts stand beside the others: `tests.peers.taskcounts` counts
all runs in the same way. It fails if a test fails fused that passes plain, and says where fewer
tasks are fused, or fewer kernels launched, than was kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.page import OF, replace
from tests.everything import commit, machine
from tests.kernelsettings import KERNELS
from tests.peers import environments
from tests.peers.packages import PACKAGES, Package
from tests.peers.runs import (
    COUNTS,
    FUSED,
    HERE,
    ROOT,
    NotRunError,
    Run,
    counted,
    run_tests,
    tasks_counted,
)

PAGE = ROOT / "docs/reference/compatibility.md"
RESULTS = HERE / "compatibility.json"
LIMIT = 3600
"""Seconds of a run of one package's tests, after which it counts as failed."""
MARK = OF.format("tests.peers.compatibility")
"""What stands on the page before what is measured."""
KEPT = 40
"""Kinds of graph breaks that are kept of each package, the most frequent."""


def runner(name: str, package: Package, sources: str, every: int) -> Callable[..., Run]:
    """Return what runs a package's tests, with a cache of kernels that is empty at first."""
    directory = environments.FOLDER / name
    directory.mkdir(parents=True, exist_ok=True)
    python = environments.interpreter(name, package)
    folder, files = environments.tests(name, package, sources)
    cache = directory / "cache"
    shutil.rmtree(cache, ignore_errors=True)

    def run(label: str, **options: Any) -> Run:
        fused = label != "plain"
        started = time.monotonic()
        done = run_tests(
            files,
            "ecosystem.ini",
            directory,
            label,
            plugins=[COUNTS, *([FUSED] if fused else [])],
            environment=KERNELS | {"XDG_CACHE_HOME": str(cache)} | dict(package.environment),
            every=every,
            rootdir=folder,
            interpreter=python,
            limit=LIMIT,
            **options,
        )
        print(
            f"{name} {label}: {len(done.passed)} passed, {len(done.failed)} failed, "
            f"{len(done.skipped)} skipped, {done.seconds:.0f} s of processor time, "
            f"{time.monotonic() - started:.0f} s",
            flush=True,
        )
        return done

    return run


def measure(name: str, package: Package, sources: str, thinner: int) -> dict[str, Any]:
    """Run a package's tests three times, and return what is kept of it."""
    every = package.every * thinner
    run = runner(name, package, sources, every)
    runs = {label: run(label) for label in ("plain", "first", "second")}
    plain, first, second = runs.values()
    if not plain.passed:
        raise NotRunError(f"no test passes plain:\n{plain.output[-3000:]}")
    lost = (first.failed & second.failed & plain.passed) - dict(package.expected).keys()
    if lost:
        # Some draw random numbers without a seed.
        lost &= run("plain", only=lost).passed
    counts = counted(environments.FOLDER / name, "second")
    tasks = {label: tasks_counted(environments.FOLDER / name, label) for label in runs}
    return {
        "release": package.release,
        "every": every,
        "files": len(environments.tests(name, package, sources)[1]),
        "passed": {label: len(done.passed) for label, done in runs.items()},
        "lost": sorted(lost),
        "expected": sorted(dict(package.expected).keys() & first.failed & second.failed),
        "seconds": {label: round(done.seconds, 1) for label, done in runs.items()},
        "plain_tasks": tasks["plain"]["tasks"],
        **share_of(tasks["second"]),
        "launches": counts["launches"],
        "unfused": tasks["second"]["unfused"][:KEPT],
        "breaks": breaks(counts),
        "commit": commit(),
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def measure_before(
    name: str, package: Package, sources: str, every: int, checkout: Path
) -> dict[str, Any]:
    """Run the same tests with the gpusched of an earlier checkout, and return what is kept of it.

    The earlier one makes other tasks of the same program.
    """
    run = runner(name, package, sources, every)
    run("before", first=[environments.earlier(checkout)])
    tasks = tasks_counted(environments.FOLDER / name, "before")
    return {"commit": commit(checkout), **share_of(tasks)}


def fewer(name: str, earlier: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return of what there is less by a tenth than was kept of the same tests.

    A task is fused however much of it a kernel computes: launches show what the share does not.
    """
    if any(earlier.get(each) != found[each] for each in ("release", "every", "tests")):
        return []
    counts = {"fused": "fused tasks", "launches": "launches"}
    return [f"{name}: {found[each]:,} {said}, {earlier[each]:,} before"
            for each, said in counts.items() if found[each] < 0.9 * earlier[each]]  # fmt: skip


def share_of(tasks: dict[str, Any]) -> dict[str, int]:
    """Return how many tests have passed, how many tasks they ran, and how many were fused."""
    return {name: tasks[name] for name in ("tests", "tasks", "fused")}


def share(counts: dict[str, Any]) -> str:
    """Return the share of tasks that are fused, and of how many."""
    return f"{counts['fused'] / max(1, counts['tasks']):.0%} of {counts['tasks']:,}"


def unfused(one: dict[str, Any]) -> str:
    """Return how many tasks launch no kernel, of the earlier gpusched and of today's."""
    counts = [found for found in (one.get("before"), one) if found]
    return " / ".join(f"{found['tasks'] - found['fused']:,}" for found in counts)


def before(one: dict[str, Any]) -> str:
    """Return the same of the earlier gpusched, and in how many tests where it passed others."""
    if "before" not in one:
        return ""
    tests = one["before"]["tests"]
    return share(one["before"]) + (f" in {tests:,} tests" if tests != one["tests"] else "")


def breaks(counts: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return (operation, reason, count), the most frequent first."""
    found = Counter({(op, str(reason)): n for (op, reason), n in counts["breaks"]})
    return [(*of, n) for of, n in sorted(found.items(), key=lambda i: (-i[1], i[0]))[:KEPT]]


def measured(results: dict[str, Any]) -> str:
    """Return the part of the page that is measured, in the order of the table of packages."""
    rows, reasons, exceptions = [], [], []
    total: Counter[tuple[str, str]] = Counter()
    for name, package in PACKAGES.items():
        if name not in results:
            rows.append((f"{name} {package.release}", "not measured yet", *[""] * 8))
            continue
        one = results[name]
        release = f"{name} {one['release']}"
        which = str(one["files"]) + (f", 1 of {one['every']} tests" if one["every"] > 1 else "")
        times = " / ".join(f"{each:,.0f}" for each in one["seconds"].values())
        passed = [f"{one['passed'][run]:,}" for run in ("plain", "second")]
        rows.append((release, which, *passed, str(len(one["lost"])), f"{one['plain_tasks']:,}",
                     before(one), share(one), unfused(one), times))  # fmt: skip
        reasons += [
            (release, f"`{operation}`", reason, f"{count:,}")
            for operation, reason, count in one["breaks"][:3]
        ]
        total.update({(operation, reason): count for operation, reason, count in one["breaks"]})
        exceptions += [f"- {name}, `{test}`: {why}." for test, why in package.expected]
    head = ("package", "files of tests", "plain", "fused", "lost", "tasks of plain dask",
            "tasks fused before", "tasks fused", "left before / now",
            "plain / first / second (s)")  # fmt: skip
    often = [(f"`{op}`", reason, f"{count:,}") for (op, reason), count in total.most_common(10)]
    runs = sorted({(r["date"], r["commit"], r["machine"]) for r in results.values()})
    parts = [
        table(head, rows),
        "## The most frequent graph breaks of each package",
        table(("package", "operation", "reason", "times"), reasons),
        "## The most frequent graph breaks of all packages",
        table(("operation", "reason", "times"), often),
        *(["## Tests that may fail fused", "\n".join(exceptions)] if exceptions else []),
        "## Where and when it was measured",
        "\n".join(f"- {day}, commit {at}: {where}" for day, at, where in runs),
    ]
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown has it."""
    cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def kept(path: Path = RESULTS) -> dict[str, Any]:
    """Return what earlier runs kept, by package."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PACKAGES, help="run these packages' tests")
    parser.add_argument("--missing", action="store_true", help="run those of which nothing is kept")
    parser.add_argument("--page", action="store_true", help="run none, and write the page")
    parser.add_argument("--thinner", type=int, default=1, help="run an n-th as many tests")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT",
                        help="count with the gpusched of another checkout instead")  # fmt: skip
    parser.add_argument("--sources", default="https://github.com", help="where repositories are")
    chosen = parser.parse_args()
    names = chosen.only or [n for n in PACKAGES if not (chosen.missing and n in kept())]
    failed = []
    for name in [] if chosen.page else names:
        package, earlier = PACKAGES[name], kept().get(name, {})
        try:
            if chosen.before is None:
                found = measure(name, package, chosen.sources, chosen.thinner)
                failed += [f"{name}: lost {test}" for test in found["lost"]]
                print(*fewer(name, earlier, found), sep="\n", flush=True)
                if "before" in earlier and earlier["every"] == found["every"]:
                    found["before"] = earlier["before"]
            else:
                every = earlier["every"]
                counts = measure_before(name, package, chosen.sources, every, chosen.before)
                found = earlier | {"before": counts}
        except NotRunError as error:
            failed.append(f"{name}: {error}")
            continue
        results = kept() | {name: found}
        present = {n: results[n] for n in PACKAGES if n in results}
        RESULTS.write_text(json.dumps(present, indent=1) + "\n")
    replace(PAGE, measured(kept()), MARK)
    print("\n".join(failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
