"""Other projects' own tests, with every chunk fused: none may fail that passes without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.peers.runs import Run, counted, run_tests
from tests.peers.suites import EVERY, SUITES, Suite, modules

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1800)]


def run_suite(suite: Suite, module: str, directory: Path, fused: bool, **options: Any) -> Run:
    """Run a module of another project's tests, or the tests of it that options choose."""
    return run_tests(
        ["--pyargs", f"{suite.package}.{module}"],
        suite.ini,
        directory,
        f"{module}-{fused}",
        plugins=(*suite.plugins, *([suite.fused] if fused else [])),
        environment=dict(suite.environment),
        **options,
    )


def check(name: str, module: str, directory: Path, every: int = 1) -> int:
    """Fail if a test fails fused that passes plain; return how many tasks were fused."""
    suite = SUITES[name]
    for needed in (suite.package.partition(".")[0], *suite.needs):
        pytest.importorskip(needed, exc_type=ImportError)
    fused = run_suite(suite, module, directory, fused=True, every=every)
    assert fused.passed or fused.skipped, fused.output[-3000:]
    counts = counted(directory, f"{module}-True")
    lost = set()
    if fused.failed:
        plain = run_suite(suite, module, directory, fused=False, only=fused.failed)
        lost = fused.failed & plain.passed
    if lost:
        # Some start clusters, which tests beside this one may disturb.
        again = directory / "again"
        again.mkdir()
        lost &= run_suite(suite, module, again, fused=True, only=lost).failed
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
