"""What tests with other libraries share: the same program with fusion on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import numpy as np
import pytest

import gpusched


@pytest.fixture(autouse=True)
def _small_chunks_too() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0, "scheduler": "threads"}):
        yield


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def launched() -> Iterator[Callable[[Callable[[], Any]], tuple[Any, int]]]:
    """Give a function that computes with fusion on, and tells how many kernels were launched."""

    def computing(program: Callable[[], Any]) -> tuple[Any, int]:
        gpusched.reset_statistics()
        with gpusched.enable():
            result = program()
        return result, gpusched.statistics().launches

    yield computing
    gpusched.reset_statistics()
