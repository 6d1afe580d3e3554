"""Tasks before and after fusion, and what processes have counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dask.array as da

import gpusched
from gpusched.dashboard.fusion_counts import KEPT, Counted, Fused, Fusion
from gpusched.graph.programs.program import Program
from gpusched.graph.running.batch import Batch
from gpusched.record.steps import ProgramStep

NONE = "no kernel for this function"


def told(tasks: int, *breaks: tuple[str, str, str, int]) -> dict[str, Any]:
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
        y = (x + 1) * 2 - x
        graph = dict(y.__dask_optimize__(y.__dask_graph__(), y.__dask_keys__()))
    fusion = Fusion()
    fusion.add(graph.items())
    assert list(fusion.by_name.values()) == [Fused(calls=16, tasks=4)]  # ones, add, multiply, ...
    assert fusion.others == len(graph) - 4


def test_where_tasks_of_numpy_programs_ran_is_counted() -> None:
    fusion = Fusion()
    on_a_gpu = {
        "device_tasks": 4,
        "host_tasks": 2,
        "host_reasons": [["sort", "NEEDS_HOST", "no kernel", 2]],
    }
    fusion.tell(("host", 1), told(3) | on_a_gpu)
    fusion.tell(("host", 2), told(3))
    counted = fusion.counted()
    assert (counted.device_tasks, counted.host_tasks) == (4, 2)
    assert fusion.breaks() == [("sort", "on the host: no kernel", 2)]


def test_tasks_of_a_batch_count_each() -> None:
    program = Program((), 0)
    program.steps = (None, None)  # type: ignore[assignment]
    batch = Batch(tuple(ProgramStep(function, ()) for function in (program, program, abs)), (2,))
    fusion = Fusion()
    fusion.add([("many-0", SimpleNamespace(func=batch)), ("other", SimpleNamespace(func=len)),
                ("data", 5)])  # fmt: skip
    assert fusion.by_name == {"many": Fused(calls=5, tasks=1)}
    assert fusion.others == 2


def test_names_are_bounded() -> None:
    program = Program((), 0)
    program.steps = (None, None)  # type: ignore[assignment]
    fusion = Fusion()
    spec = SimpleNamespace(func=program)
    fusion.add(((f"name{'x' * number}-0", 0), spec) for number in range(KEPT + 5))
    assert len(fusion.by_name) == KEPT


def test_what_a_process_tells_again_replaces_what_it_told() -> None:
    fusion = Fusion()
    fusion.tell(("host", 1), told(3, ("sort", "NO_KERNEL", NONE, 1)))
    fusion.tell(
        ("host", 2),
        told(5, ("sort", "NO_KERNEL", NONE, 2), ("f", "OPTION", "x", 9)),
    )
    fusion.tell(("host", 1), told(4, ("sort", "NO_KERNEL", NONE, 4)))
    assert fusion.counted() == Counted(tasks=9, fused_tasks=7, launches=9)
    assert fusion.breaks() == [
        ("f", "x", 9),
        ("sort", NONE, 6),
    ]
    assert fusion.launches == {("host", 1): {"add": 4}, ("host", 2): {"add": 5}}


def test_processes_are_bounded() -> None:
    fusion = Fusion()
    for pid in range(KEPT + 3):
        fusion.tell(("host", pid), told(1))
    assert fusion.counted().tasks == KEPT == len(fusion.launches)
