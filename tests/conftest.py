"""What all tests share."""

from __future__ import annotations

import os
import shutil

# Errors inside gpusched are errors of the tests', in the processes that these start as well.
os.environ.setdefault("DASK_GPUSCHED__FUSION__STRICT", "True")

import pytest
from hypothesis import settings

# Timings are not tests: the first example may compile, and the machine may be busy.
settings.register_profile("gpusched", deadline=None)
settings.load_profile("gpusched")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU where there is none."""
    gpu = shutil.which("nvidia-smi") is not None
    for item in items:
        if not gpu and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one test more than there are cores: many wait for other processes."""
    return len(os.sched_getaffinity(0)) + 1
