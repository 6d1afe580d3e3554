"""Tasks that only one other task needs become part of it; values stay."""

from __future__ import annotations

from operator import add
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array.core import concatenate_shaped

from gpusched.graph import enable
from gpusched.graph.passes.chains import without_links
from gpusched.graph.passes.table import Table


def graph(*tasks: Any) -> dict[Any, Any]:
    return {task.key: task for task in tasks}


def joining(key: str = "both") -> list[Any]:
    """Return two tasks and one that takes them both."""
    made = [Task("x", abs, -1), Task("y", abs, -2)]
    return [*made, Task(key, add, TaskRef("x"), TaskRef("y"))]


def values_of(tasks: dict[Any, Any], key: Any) -> Any:
    return dask.get(tasks, key)


def test_a_chain_of_any_length_is_one_task() -> None:
    tasks = graph(*joining(), Task("a", abs, TaskRef("both")), Task("b", str, TaskRef("a")))
    found = without_links(Table(tasks, ["b"])).tasks
    assert set(found) == {"x", "y", "b"}
    assert found["b"].dependencies == {"x", "y"}
    assert values_of(found, "b") == "3"


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ([Task("a", abs, TaskRef("both"))], ["a", "both"]),
        ([Task("a", abs, TaskRef("both")), Task("b", abs, TaskRef("both"))], ["a", "b"]),
        ([Task("a", add, TaskRef("both"), TaskRef("x"))], {"a"}),
    ],
    ids=["result", "two users", "two operands"],
)
def test_what_others_need_stays(more: list[Any], wanted: set[Any]) -> None:
    tasks = graph(*joining(), *more)
    assert without_links(Table(tasks, wanted)).tasks is tasks


def test_data_and_what_is_elsewhere_stay() -> None:
    tasks = graph(DataNode("d", 3), Task("a", abs, TaskRef("d")), Task("b", abs, TaskRef("out")))
    assert without_links(Table(tasks, ["a", "b"])).tasks is tasks


def test_annotated_tasks_stay_where_they_are_to_run() -> None:
    x = da.ones((40, 40), chunks=20).rechunk((40, 20))
    with dask.annotate(priority=3):
        y = (x + 1).rechunk((20, 40))
    z = (y + 1).sum()
    with enable():
        assert z.compute(scheduler="sync") == 40 * 40 * 3


def test_what_joins_pieces_is_part_of_what_computes_with_them() -> None:
    x = da.from_array(np.arange(1600.0).reshape(40, 40), chunks=20).map_blocks(np.copy)

    def shifted() -> Any:
        return x.map_overlap(lambda u: u[:-2] + u[2:], depth=(1, 0), boundary="nearest",
                             trim=False, chunks=x.chunks, meta=x._meta)  # fmt: skip

    plain = shifted().compute(scheduler="sync")
    with enable(), dask.config.set({"gpusched.batching.chunk-bytes": 1000}):
        (found,) = dask.optimize(shifted())
        tasks = dict(found.__dask_graph__())
        np.testing.assert_array_equal(found.compute(scheduler="sync"), plain)
    names = [key[0].rpartition("-")[0] for key in tasks if isinstance(key, tuple)]
    assert "getitem" not in names


def test_several_joined_chunks_are_part_of_what_computes_with_them() -> None:
    def field(number: int) -> Any:
        values = np.arange(3600.0).reshape(60, 60) * number
        return da.from_array(values, chunks=20).map_blocks(np.copy)

    def advected(u: Any, v: Any) -> Any:
        return u[1:-1, 1:-1] + v[1:-1, 1:-1] * (u[2:, 1:-1] - u[:-2, 1:-1])

    def program() -> Any:
        return da.map_overlap(advected, field(1), field(2), depth=1, boundary="nearest",
                              trim=False, dtype="f8", meta=np.empty((0, 0)))  # fmt: skip

    plain = program().compute(scheduler="sync")
    with enable(), dask.config.set({"gpusched.batching.chunk-bytes": 1000}):
        (found,) = dask.optimize(program())
        tasks = dict(found.__dask_graph__())
        np.testing.assert_array_equal(found.compute(scheduler="sync"), plain)
    large = [task for key, task in tasks.items() if key in found.__dask_keys__()[0]]
    assert all("advected" in task.func.__name__ for task in large)
    assert all(task.func.__name__.count("concatenate_shaped") == 2 for task in large)


def test_joined_chunks_that_nothing_computes_with_stay_tasks() -> None:
    def opaque(a: Any, b: Any) -> Any:
        return np.apply_over_axes(np.cumsum, a, [0]) + b

    join = [List(TaskRef("x"), TaskRef("y")), (2, 1)]
    tasks = graph(*joining()[:2], Task("p", concatenate_shaped, *join),
                  Task("a", opaque, TaskRef("p"), TaskRef("x")))  # fmt: skip
    assert without_links(Table(tasks, ["a"]), joins=True).tasks is tasks
    tasks = graph(*tasks.values()) | graph(Task("a", add, TaskRef("p"), TaskRef("x")))
    assert without_links(Table(tasks, ["a"])).tasks is tasks
    assert "p" not in without_links(Table(tasks, ["a"]), joins=True).tasks
