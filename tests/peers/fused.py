"""A pytest plugin that fuses every chunk of another project's tests, however small.

``pytest -p tests.peers.fused --pyargs dask.array.tests.test_ufunc``
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import dask
import pytest

EVERYTHING = {
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.minimum-operations": 0,
    "gpusched.fusion.strict": True,
    "gpusched.chunks.automatic": False,
    "gpusched.batching.least": 1,
    "gpusched.batching.tasks": 3,
}
"""Fuse single operations on single elements, let the recorder's own faults show, and batch the
tasks of the smallest graphs, so that there are several batches. Chunks are as large as without."""

AS_USERS_HAVE_IT: dict[str, dict[str, Any]] = {
    # Counts tasks; users have no batches in graphs so small.
    "test_blockwise_fusion": {"gpusched.batching.least": None},
    # Compares all bits of a mean of 12 numbers: kernels add in another order than NumPy.
    "test_reduce_keepdims_dask": {"gpusched.fusion.minimum-elements": 4096},
}
"""Settings of tests, by name, that what is set here would disturb."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    # Before a conftest imports `distributed.utils_test`, whose clusters put back the configuration
    # that there was then.
    from gpusched.graph import enable

    dask.config.set(EVERYTHING)
    enable()


def pytest_collection_finish() -> None:
    with suppress(ImportError):  # An earlier gpusched has not what `tiers` asks it.
        from tests import tiers

        tiers.collect_less()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with dask.config.set(AS_USERS_HAVE_IT.get(item.name, {})):
        return (yield)


def pytest_sessionfinish(session: Any) -> None:
    from gpusched import statistics

    path = os.environ.get("GPUSCHED_PEER_STATISTICS")
    if path:
        # Keys that JSON has not, such as a function's name and a reason, become lists.
        found = {
            name: list(value.items()) if isinstance(value, Counter) else value
            for name, value in vars(statistics()).items()
        }
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        with open(f"{path}.{worker}", "w") as file:
            json.dump(found, file, default=asdict)
