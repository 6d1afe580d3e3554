"""What tasks that dask has put together call, with what."""

from __future__ import annotations

import operator
import sys
from typing import Any

import pytest
from dask._task_spec import List, Task, TaskRef

from gpusched.adapters.tasks import execute_subgraph
from gpusched.graph.subgraph import evaluate, walk


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


def test_what_a_fused_task_inside_of_another_is_given_comes_in_the_order_of_its_use() -> None:
    """dask lists it by hashes, with which programs of tasks that do the same would differ."""
    keys = [f"x{k}" for k in range(8)]
    calls = Task("most", max, *map(TaskRef, keys)), Task("size", abs, TaskRef("most"))
    fused = Task.fuse(Task.fuse(*calls), Task("less", int, TaskRef("size")))
    order: dict[Any, None] = {}

    def argument(value: Any, known: Any) -> Any:
        if isinstance(value, TaskRef):
            return known[value.key] if value.key in known else order.setdefault(value.key)
        if value.func is execute_subgraph:
            return walk(value, known, argument)
        return [argument(each, known) for each in value.args]

    walk(fused, {}, argument)
    assert list(order) == keys


def test_chains_longer_than_python_s_stack_are_gone_through() -> None:
    """As many as dask fuses: a loop of a thousand steps was a `RecursionError`."""
    steps = 3 * sys.getrecursionlimit()
    links = [Task(k, operator.add, TaskRef(k - 1), 1) for k in range(1, steps + 1)]
    fused = Task.fuse(*links)
    assert evaluate(fused, {0: 0}, lambda task, args, kwargs, key: task.func(*args)) == steps
