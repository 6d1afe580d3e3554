"""What tasks that dask has put together call, with what."""

from __future__ import annotations

from typing import Any

import pytest
from dask._task_spec import List, Task, TaskRef

from gpusched.graph.subgraph import evaluate


class Future(TaskRef):
    """A reference of another type, as distributed's futures are."""


@pytest.mark.parametrize("listed", [False, True])
def test_a_future_among_the_arguments_of_a_task_inside(listed: bool) -> None:
    future = Future("scattered")
    adds = Task("b", lambda x, y: (x, y), TaskRef("x"), List(future) if listed else future)
    fused = Task.fuse(adds, Task("c", len, TaskRef("b")))

    def call(task: Task, args: list[Any], kwargs: dict[str, Any], key: Any) -> Any:
        return task.func(*args, **kwargs)

    made: dict[Any, Any] = {}
    assert evaluate(fused, {"x": 1, "scattered": 5}, call, made=made) == 2
    assert made["b"] == (1, [5] if listed else 5)
