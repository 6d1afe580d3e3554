"""Other projects' own tests, with every chunk fused: none may fail that passes without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import emulated_gpu
from tests.peers.suites import EVERY, HERE, SUITES, Suite, modules

ROOT = HERE.parents[1]

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]


@dataclass
class Run:
    """What one run of a module's tests said."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]
    output: str


def run_tests(suite: Suite, module: str, directory: Path, fused: bool,
              only: set[str] | None = None, every: int = 1) -> Run:  # fmt: skip
    """Run a module of another project's tests in a process of its own, or each n-th of them."""
    report = directory / f"{module}-{fused}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", str(HERE / suite.ini), "--rootdir", str(directory)]
    command += [f"--junitxml={report}"]
    for plugin in (*suite.plugins, *([suite.fused] if fused else [])):
        command += ["-p", plugin]
    if every > 1:
        command += [f"--every={every}"]
    if only:
        functions = {name.rpartition("::")[2].partition("[")[0] for name in only}
        command += ["-k", " or ".join(sorted(functions))]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment = (
        own
        | dict(suite.environment)
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *_emulated()]),
            "GPUSCHED_PEER_STATISTICS": str(directory / "statistics"),
        }
    )
    done = subprocess.run([*command, "--pyargs", f"{suite.package}.{module}"], cwd=directory,
                          env=environment, capture_output=True, text=True)  # fmt: skip
    if not report.exists():
        pytest.fail(f"the tests did not run:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    outcomes: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        outcomes[outcome].add(f"{case.get('classname', '')}::{case.get('name', '')}")
    return Run(**outcomes, output=done.stdout)


def _emulated() -> list[str]:
    """Return the folder that turns the emulated GPU on, where this process has it."""
    return [str(emulated_gpu.START)] if emulated_gpu.active else []


def check(name: str, module: str, directory: Path, every: int = 1) -> int:
    """Fail if a test fails fused that passes plain; return how many tasks were fused."""
    suite = SUITES[name]
    for needed in (suite.package.partition(".")[0], *suite.needs):
        pytest.importorskip(needed, exc_type=ImportError)
    fused = run_tests(suite, module, directory, fused=True, every=every)
    assert fused.passed or fused.skipped, fused.output[-3000:]
    counts = json.loads((directory / "statistics.main").read_text())
    lost = set()
    if fused.failed:
        plain = run_tests(suite, module, directory, fused=False, only=fused.failed)
        lost = fused.failed & plain.passed
    if lost:
        # Some start clusters, which tests beside this one may disturb.
        again = directory / "again"
        again.mkdir()
        lost &= run_tests(suite, module, again, fused=True, only=lost).failed
    assert not lost, f"{sorted(lost)}\n{fused.output[-6000:]}"
    failed = f"{len(fused.failed)} failed as they do plain, or once only"
    outcome = f"{len(fused.passed)} passed, {failed}"
    tasks = f"{counts['fused_tasks']} of {counts['tasks']} tasks fused"
    print(f"{name} {module}: {outcome}, {len(fused.skipped)} skipped; {tasks}")
    return int(counts["fused_tasks"])


@pytest.mark.parametrize(("name", "module"), modules(common=True))
def test_some_of_common_modules(name: str, module: str, tmp_path: Path) -> None:
    fused = check(name, module, tmp_path, EVERY)
    assert fused, "no task was fused: the tests are of another kind of array"


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "module"), modules(common=False))
def test_whole_modules(name: str, module: str, tmp_path: Path) -> None:
    check(name, module, tmp_path)
