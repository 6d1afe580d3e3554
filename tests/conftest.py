"""What all tests share."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import dask
import pytest
from hypothesis import settings

# Timings are not tests: the first example may compile, and the machine may be busy.
settings.register_profile("gpusched", deadline=None)
settings.load_profile("gpusched")


@pytest.fixture(autouse=True)
def settings_stay() -> Iterator[None]:
    """Fail a test that leaves a setting changed, which tests after it would have in its place."""
    before = copy.deepcopy(dask.config.config)
    yield
    changed = list(_changed(before, dask.config.config))
    dask.config.update(dask.config.config, before)
    assert not changed


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[str]:
    # New ones are those of libraries that have been imported meanwhile.
    for name, value in before.items():
        if isinstance(value, Mapping) and isinstance(after.get(name), Mapping):
            yield from _changed(value, after[name], f"{path}{name}.")
        elif name not in after or after[name] != value:
            yield f"{path}{name} is {after.get(name)!r}"


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
