"""What all tests share: Hypothesis profiles, tiers, and one cache of compiled kernels."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

from tests.kernelsettings import KERNELS

# Errors inside gpusched are errors of the tests, in the processes that these start as well; set
# before dask reads its configuration.
os.environ.setdefault("DASK_GPUSCHED__FUSION__STRICT", "True")
os.environ.update(KERNELS | os.environ)
# Several test processes share a GPU, of which JAX would take three quarters.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import pytest
from hypothesis import HealthCheck, settings

from tests import emulated_gpu, kernelcache, tiers

# Timings are not tests: the first example may compile, and the machine may be busy. Only the
# nightly run looks for new examples; the others repeat the same ones.
settings.register_profile(
    "dev",
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dev"), max_examples=60)
settings.register_profile(
    "nightly", settings.get_profile("dev"), derandomize=False, max_examples=600, print_blob=True
)
settings.load_profile("dev")


def pytest_configure(config: pytest.Config) -> None:
    """Let all processes of this run share compiled kernels, those that tests start included."""
    if emulated_gpu.requested() and not emulated_gpu.active:
        raise pytest.UsageError(f"{emulated_gpu.SWITCH} is set, and {emulated_gpu.HOW}")
    if not hasattr(config, "workerinput"):
        os.environ["XDG_CACHE_HOME"] = str(kernelcache.folder(config.rootpath))


@pytest.hookimpl(tryfirst=True)  # Before -m looks at the markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the markers that follow from fixtures and from the machine."""
    tiers.set_markers(items)


def pytest_collection_finish() -> None:
    """Spend less on garbage collections."""
    tiers.collect_less()


watch = tiers.Watch()


def pytest_runtest_call() -> None:
    """Count what the call of a test uses, not what its fixtures do."""
    watch.begin()


@pytest.fixture(autouse=True, scope="module")
def little_to_collect(request: pytest.FixtureRequest) -> None:
    """Take what is there out of the garbage collections that the tests of a module ask for."""
    if hasattr(request.module, "gc"):
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail tests that break a rule of the default tier."""
    report = yield
    if call.when == "call" and report.passed and tiers.is_default(item.config):
        broken = tiers.broken_rule(item, watch)
        if broken:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} {broken}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line for each reason what was skipped."""
    for line in tiers.skipped(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one test more than there are cores: many wait for other processes."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(scope="session")
def kernel_cache() -> Path:
    """Return the cache folder that all tests of a run share, for commands to be started with."""
    return Path(os.environ["XDG_CACHE_HOME"])
