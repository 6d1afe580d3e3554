"""A pytest plugin that computes another project's NumPy programs as a worker that owns a GPU does.

Every chunk is moved to the device for whatever can run there, however small, and the results come
back as NumPy's arrays. ``pytest -p tests.peers.placed --pyargs dask.array.tests.test_fft``
"""

from __future__ import annotations

from contextlib import ExitStack

from tests.peers.fused import (
    pytest_collection_finish,
    pytest_load_initial_conftests,
    pytest_runtest_call,
    pytest_sessionfinish,
)
from tests.placing.gpuworker import everywhere

__all__ = [
    "pytest_collection_finish",
    "pytest_load_initial_conftests",
    "pytest_runtest_call",
    "pytest_sessionfinish",
]

_open = ExitStack()


def pytest_configure() -> None:
    _open.enter_context(everywhere())


def pytest_unconfigure() -> None:
    _open.close()
