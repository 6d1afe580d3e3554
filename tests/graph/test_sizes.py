"""What dask tells of the sizes of chunks, and of what reductions leave of them."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.array.optimization import optimize

from gpusched.graph.known import is_first_step
from gpusched.graph.sizes import Sizes


def step_of(array: Any) -> tuple[Sizes, Task]:
    """Return the sizes of a graph, and the first step of the reduction in it."""
    graph = array.__dask_graph__()
    steps = (node for node in graph.values() if type(node) is Task and is_first_step(node))
    return Sizes(graph.layers), next(steps)


@pytest.mark.parametrize(
    ("axis", "kept"), [(0, 6 * 7), (-1, 5 * 6), ((0, 2), 6), ((0, 1, 2), 1), (None, 1)]
)
def test_reductions_leave_what_they_do_not_reduce(axis: Any, kept: int) -> None:
    x = da.ones((10, 12, 14), chunks=(5, 6, 7), dtype="f4")
    sizes, step = step_of(x.sum(axis=axis))
    # Up to five arrays of numbers of eight bytes: of variances.
    assert sizes.of_first_step(step) == 5 * 8 * kept
    sizes, step = step_of(x.var(axis=axis))
    left = step({key: np.ones((5, 6, 7), "f4") for key in step.dependencies})
    assert sizes.of_first_step(step) >= sum(each.nbytes for each in left.values())


def test_chunks_of_unknown_size_leave_what_is_unknown() -> None:
    x = da.ones(10, chunks=5)
    sizes, step = step_of(x[x > 0].sum())
    assert sizes.of_first_step(step) is None


def test_moments_leave_as_many_arrays_as_their_order_has() -> None:
    x = da.ones((10, 12), chunks=(5, 6))
    sizes, step = step_of(da.moment(x, 6, axis=0))
    left = step({key: np.ones((5, 6)) for key in step.dependencies})
    assert sizes.of_first_step(step) == sum(each.nbytes for each in left.values())


@pytest.mark.parametrize(
    "options",
    [{"axis": "time"}, {"axis": np.int64(0)}, {"axis": 0}, {"axis": (0,), "keepdims": False}],
)
def test_functions_with_the_same_options_are_none(options: dict[str, Any]) -> None:
    task = Task("x", np.sum, TaskRef("y"), **{"keepdims": True, **options})
    assert not is_first_step(task)


def test_task_takes_what_its_calls_leave_each_other() -> None:
    x = da.ones((40, 10), chunks=(20, 10))
    y = da.exp(x.persist(scheduler="sync") * 2 + 1)
    tasks = optimize(y.dask, y.__dask_keys__())
    sizes = Sizes(y.dask.layers)
    assert {sizes.extra(node) for node in tasks.values() if type(node) is Task} == {2 * 8 * 200}


def test_task_that_reduces_takes_what_it_reduces_and_little_more() -> None:
    x = da.ones((40, 100), chunks=(20, 100)).persist(scheduler="sync")
    y = ((x - 1) ** 2).sum(axis=1, keepdims=True)
    sizes = Sizes(y.dask.layers)
    (first, *_) = [n for n in optimize(y.dask, y.__dask_keys__()).values() if type(n) is Task]
    assert sizes.extra(first) == 2 * 8 * 20 * 100
