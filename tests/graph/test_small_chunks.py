"""Whether chunks are small is judged by what is made of them: outer products are large."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph import enable
from gpusched.store.statistics import reset_statistics, statistics

X = np.linspace(0.5, 2, 200)
POINTS = X.reshape(50, 4)


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1))


def of_pairs(x: Any) -> Any:
    return np.exp(-((x[:, None] - x[None, :]) ** 2))


def of_points(x: Any) -> Any:
    points = da.from_array(POINTS, chunks=(25, 4))
    return da.blockwise(distances, "ij", points, "ik", points, "jk", concatenate=True, dtype="f8")


LARGE = [
    of_pairs,
    of_points,
    lambda x: np.sqrt(da.outer(x, x) + 1),
    lambda x: abs(x[:, None] - x[:, None].T) * 2,
    lambda x: np.sqrt(x[:, None] * 2 + np.linspace(0, 1, 40)),
]
SMALL = [
    lambda x: (x * 2 + 1).sum(),
    lambda x: x[:, None] * 2 + 1,
    lambda x: x.map_blocks(lambda block: block[:, None][:, 0] * 2 + 1),
]
LEAST = 600
"""Elements: more than those of a chunk, and of two."""


@pytest.fixture(autouse=True)
def settings(no_compiler: None) -> Iterator[None]:
    """Fuse what has at least so many elements."""
    chosen = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": LEAST,
              "gpusched.fusion.compile": "wait", "scheduler": "sync"}  # fmt: skip
    with dask.config.set(chosen), enable():
        reset_statistics()
        yield


@pytest.mark.parametrize("program", LARGE)
def test_what_is_made_of_small_chunks_is_fused_if_it_is_large(program: Callable) -> None:
    expected = program(da.from_array(X, chunks=100)).compute(scheduler="sync", optimize_graph=False)
    found = program(da.from_array(X, chunks=100)).compute()
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert statistics().fused_tasks and not statistics().unfused_tasks


@pytest.mark.parametrize("program", SMALL)
def test_what_is_small_itself_is_not(program: Callable) -> None:
    program(da.from_array(X, chunks=100)).compute()
    counts = statistics()
    assert not counts.launches and not counts.compilations
    assert {reason.kind.name for _, reason in counts.breaks} == {"SMALL_CHUNKS"}


def test_small_chunks_are_judged_once_for_each_kind() -> None:
    for _ in range(3):
        of_pairs(da.from_array(X[:40], chunks=20)).compute()
    assert not sum(statistics().recorded.values())
    assert statistics().breaks[operator.sub.__name__, "small chunks"] == 3 * 4
