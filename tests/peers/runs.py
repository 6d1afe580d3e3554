"""One run of another project's tests, in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import emulated_gpu

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

FUSED = "tests.peers.fused"
"""pytest's plugin of runs with gpusched."""
COUNTS = "tests.peers.taskcounts"
"""pytest's plugin that counts tasks, in runs with and without it."""


class NotRunError(Exception):
    """pytest ended before it reported."""


@dataclass
class Run:
    """What one run said."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]
    output: str
    seconds: float
    """Processor time, of all threads and processes that it waited for."""


def run_tests(
    targets: Iterable[str],
    ini: str,
    directory: Path,
    label: str,
    *,
    plugins: Iterable[str] = (),
    environment: Mapping[str, str] = {},
    only: Iterable[str] = (),
    every: int = 1,
    rootdir: Path | None = None,
    interpreter: str = sys.executable,
    limit: float | None = None,
    first: Iterable[Path] = (),
) -> Run:
    """Run tests with pytest.

    Parameters
    ----------
    targets
        What pytest is given: files, or modules after ``--pyargs``.
    ini
        The file of pytest's settings, beside this one.
    directory
        Where it runs and reports, under names that begin with `label`.
    plugins
        pytest's.
    environment
        Variables besides this process's.
    only
        Tests, as a run names them, outside of whose functions none is run.
    every
        Each n-th test is run.
    rootdir
        pytest's; `directory` by default.
    interpreter
        Of the environment that has the tests.
    limit
        Seconds after which it is ended; None for no limit.
    first
        Folders in which Python looks for modules before all others.

    Raises
    ------
    NotRunError
        If pytest crashed, could not begin, or was ended.
    """
    report = directory / f"{label}.xml"
    report.unlink(missing_ok=True)
    command = [interpreter, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", str(HERE / ini), "--rootdir", str(rootdir or directory)]
    command += [f"--junitxml={report}", "--continue-on-collection-errors"]
    for plugin in ("tests.peers.sampled", *plugins):
        command += ["-p", plugin]
    if every > 1:
        command += [f"--every={every}"]
    functions = {name.rpartition("::")[2].partition("[")[0] for name in only}
    if functions:
        command += ["-k", " or ".join(sorted(functions))]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    own |= environment
    own |= {
        "PYTHONPATH": os.pathsep.join([*map(str, first), str(ROOT), *_emulated()]),
        "GPUSCHED_PEER_STATISTICS": str(directory / f"{label}-statistics"),
    }
    before = _seconds()
    said = directory / f"{label}.txt"
    with said.open("w") as file, subprocess.Popen(
        [*command, *targets], cwd=directory, env=own, stdout=file, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise NotRunError(f"not ended in {limit} s:\n{said.read_text()[-3000:]}") from error
    output = said.read_text()
    if not report.exists():
        raise NotRunError(f"the tests did not run:\n{output[-3000:]}")
    outcomes: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        outcomes[outcome].add(f"{case.get('classname', '')}::{case.get('name', '')}")
    return Run(**outcomes, output=output, seconds=_seconds() - before)


def counted(directory: Path, label: str) -> dict[str, Any]:
    """Return gpusched's statistics of a run with `FUSED`."""
    found: dict[str, Any] = json.loads((directory / f"{label}-statistics.main").read_text())
    return found


def tasks_counted(directory: Path, label: str) -> dict[str, Any]:
    """Return what `COUNTS` has counted in a run."""
    found: dict[str, Any] = json.loads((directory / f"{label}-statistics.tasks").read_text())
    return found


def _emulated() -> list[str]:
    """Return the folder that turns the emulated GPU on, where this process has it."""
    return [str(emulated_gpu.START)] if emulated_gpu.active else []


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
