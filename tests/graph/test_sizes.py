"""What dask tells of the sizes of chunks, and of what reductions leave of them."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

from gpusched.graph.merging import reduction
from gpusched.graph.sizes import Sizes


def step_of(array: Any) -> tuple[Sizes, Task]:
    """Return the sizes of a graph, and the first step of the reduction in it."""
    graph = array.__dask_graph__()
    found = (reduction(node) for node in graph.values() if type(node) is Task)
    return Sizes(graph.layers), next(step for step in found if step is not None)


@pytest.mark.parametrize(
    ("axis", "kept"), [(0, 6 * 7), (-1, 5 * 6), ((0, 2), 6), ((0, 1, 2), 1), (None, 1)]
)
def test_reductions_leave_what_they_do_not_reduce(axis: Any, kept: int) -> None:
    x = da.ones((10, 12, 14), chunks=(5, 6, 7), dtype="f4")
    sizes, step = step_of(x.sum(axis=axis))
    # Up to three arrays of numbers of eight bytes: of variances.
    assert sizes.of_reduction(step) == 3 * 8 * kept
    sizes, step = step_of(x.var(axis=axis))
    left = step({key: np.ones((5, 6, 7), "f4") for key in step.dependencies})
    assert sizes.of_reduction(step) >= sum(each.nbytes for each in left.values())


def test_chunks_of_unknown_size_leave_what_is_unknown() -> None:
    x = da.ones(10, chunks=5)
    sizes, step = step_of(x[x > 0].sum())
    assert sizes.of_reduction(step) is None
