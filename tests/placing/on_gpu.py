"""A pytest plugin that runs tests of NumPy programs with their chunks on a GPU.

``pytest -p tests.placing.on_gpu tests/graph tests/record``. What tests compute with dask is
computed as a worker that owns a GPU does: every chunk is moved to the device for whatever can run
there, however small, and the results come back as NumPy arrays. What tests record is recorded on
CuPy arrays.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.placing.host_only import COUNTED, COUNTS, LEFT_OUT

_open = ExitStack()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the GPU, in each process that runs tests, and say of these that they need it.

    The first that calls one of CuPy's functions on the emulated GPU starts a compiler for it.
    """
    for item in session.items:
        item.add_marker(pytest.mark.gpu)
    # Not imported at the top: `tests.conftest` sets the environment before dask reads it.
    from gpusched.backends.devices import cuda
    from tests.placing.gpuworker import everywhere
    from tests.record import recording

    worker = _open.enter_context(everywhere())
    recording.PLACES["gpu"] = worker.place()
    recording.BACKENDS.update(python=cuda().compile, cpu=cuda().compile)


def pytest_unconfigure() -> None:
    """Give the GPU back."""
    _open.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is the host's, and tests of another backend: all are the GPU's now."""
    left = [item for item in items if _begins(item, LEFT_OUT) or _backend(item) == "cpu"]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _begins(item: pytest.Item, names: Iterable[str]) -> bool:
    return item.nodeid.removeprefix("tests/").startswith(tuple(names))


def _backend(item: pytest.Item) -> Any:
    return getattr(getattr(item, "callspec", None), "params", {}).get("backend")


def is_count(error: Exception) -> bool:
    """Return whether an error says that something is not as many; ``(launch,) = ...`` does, too."""
    return isinstance(error, AssertionError) or " values to unpack (expected " in str(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Let a test that counts what the processor does go on to its first count."""
    try:
        return (yield)
    except (AssertionError, ValueError) as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        own = frame.f_code.co_name == item.obj.__name__
        if not (is_count(error) and own and _begins(item, COUNTED)):
            raise
        pytest.skip(COUNTS)
