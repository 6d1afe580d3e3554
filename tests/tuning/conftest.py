"""What the tests of overriding and tuning share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.inspection.kernel_listings import ExplainedKernel
from gpusched.plan import overrides


@pytest.fixture(autouse=True)
def everything_fuses(tmp_path: Path) -> Iterator[None]:
    """Record every chunk however small, with a cache of the test's own, and no version applied."""
    settings = {
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.fusion.strict": True,
        "gpusched.fusion.cache-directory": str(tmp_path / "cache"),
        "scheduler": "sync",
    }
    with dask.config.set(settings), gpusched.enable():
        gpusched.reset_statistics()
        yield
    assert not overrides.active(), "a test left a version of a kernel behind"


@pytest.fixture
def numbers() -> np.ndarray:
    return np.random.default_rng(0).random((30, 40))


@pytest.fixture
def program(numbers: np.ndarray) -> da.Array:
    """A program of one kernel, ``(x + 1) * 7`` on four chunks."""
    return (da.from_array(numbers, chunks=(15, 20)) + 1) * 7


def kernel_of(program: da.Array) -> ExplainedKernel:
    """Return a program's only kernel."""
    (found,) = gpusched.explain(program).kernels
    return found
