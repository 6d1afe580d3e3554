"""Tasks before and after fusion, and what processes have counted."""

from __future__ import annotations

from typing import Any

import dask.array as da

import gpusched
from gpusched.dashboard.fused import KEPT, Counted, Fused, Fusion


def told(tasks: int, *breaks: tuple[str, str, int]) -> dict[str, Any]:
    return {
        "tasks": tasks,
        "fused_tasks": tasks - 1,
        "launches": tasks,
        "kernels": [["add", tasks]],
        "breaks": breaks,
    }


def test_calls_of_each_name_are_counted() -> None:
    with gpusched.enable():
        x = da.ones((4000, 10), chunks=(1000, 10))
        graph = dict(((x + 1) * 2 - x).__dask_optimize__(*_graph((x + 1) * 2 - x)))
    fusion = Fusion()
    fusion.add(graph.items())
    assert list(fusion.by_name.values()) == [Fused(calls=16, tasks=4)]  # ones, add, multiply, ...
    assert fusion.others == len(graph) - 4


def _graph(array: Any) -> tuple[Any, Any]:
    return array.__dask_graph__(), array.__dask_keys__()


def test_names_are_bounded() -> None:
    class Spec:
        class func:
            steps = (1, 2)

    fusion = Fusion()
    fusion.add(((f"name{'x' * number}-0", 0), Spec) for number in range(KEPT + 5))
    assert len(fusion.by_name) <= KEPT


def test_what_a_process_tells_again_replaces_what_it_told() -> None:
    fusion = Fusion()
    fusion.tell(("host", 1), told(3, ("sort", "no kernel for this function", 1)))
    fusion.tell(("host", 2), told(5, ("sort", "no kernel for this function", 2), ("f", "x", 9)))
    fusion.tell(("host", 1), told(4, ("sort", "no kernel for this function", 4)))
    assert fusion.counted() == Counted(tasks=9, fused_tasks=7, launches=9)
    assert fusion.stops() == [("f", "x", 9), ("sort", "no kernel for this function", 6)]
    assert list(fusion.launches.values()) == [{"add": 4}, {"add": 5}]


def test_processes_are_bounded() -> None:
    fusion = Fusion()
    for pid in range(KEPT + 3):
        fusion.tell(("host", pid), told(1))
    assert fusion.counted().tasks == KEPT == len(fusion.launches)
