"""What the tests of jobs share: the real command, with a folder of jobs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Runner, _checked
from tests.tiers import starts_processes


@pytest.fixture
@starts_processes
def gpusched(tmp_path: Path, kernel_cache: Path) -> Iterator[Runner]:
    """Give a runner of gpusched; afterwards no process of its jobs may live."""
    runner = Runner(tmp_path, kernel_cache)
    runner.environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    # One thread and little memory a worker: jobs of several nodes share this machine.
    runner.environment["DASK_GPUSCHED__CLUSTER__MEMORY_LIMIT"] = "1 GiB"
    yield from _checked(runner)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Return the folder of the runner's jobs."""
    return tmp_path / "state/gpusched/jobs"
