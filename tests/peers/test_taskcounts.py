"""Tasks are counted alike with plain dask and with gpusched; those with kernels are fused."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import local
from dask._task_spec import Alias, DataNode, Task, TaskRef
from toolz import compose

import gpusched
from gpusched.graph.programs.program import Program
from gpusched.store.statistics import updating
from tests.differential.case import BATCHES
from tests.graph.conftest import SETTINGS
from tests.peers.taskcounts import TaskCounts, called, watch_launches


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> TaskCounts:
    """Counts of what is computed from now on, until the test ends."""
    for owner, name in ((type(updating()), "__enter__"), (type(updating()), "__exit__"),
                        (Program, "__call__"), (local, "execute_task")):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    found = TaskCounts()
    found.test = "it"
    found.watch_tasks()
    watch_launches()
    return found


def chunked() -> da.Array:
    return da.from_array(np.arange(8.0), chunks=4)


def shuffled(chunk: Any) -> Any:
    return np.random.default_rng(0).permutation(chunk)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_tasks_that_launch_kernels_are_fused(counts: TaskCounts, scheduler: str) -> None:
    with dask.config.set(SETTINGS), gpusched.enable():
        ((chunked() + 1) * 2).compute(scheduler=scheduler)
        assert (counts.fused["it"], counts.unfused) == (2, {})
        chunked().map_blocks(shuffled).compute(scheduler=scheduler)
    assert counts.fused["it"] == 2
    assert counts.unfused["it"] == {f"{__name__}.shuffled": 2}


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_plain_dask_is_counted_in_the_same_way(counts: TaskCounts, scheduler: str) -> None:
    with gpusched.disable():
        ((chunked() + 1) * 2).compute(scheduler=scheduler)
        chunked()[1:].rechunk(3).compute(scheduler=scheduler)  # Cuts and joins.
    assert counts.fused == Counter()
    assert counts.unfused["it"].total() == 2


def test_only_tests_that_pass_are_summed_up(counts: TaskCounts) -> None:
    for counts.test in ("one", "other"):
        counts.note(Task("x", np.sort, TaskRef("y")), np.zeros(1))
        counts.note(Task("x", len, TaskRef("y")), 3)  # No array.
        counts.note(Alias("x", "y"), np.zeros(1))
    counts.passed = {"one"}
    assert counts.totals() == {"tests": 1, "tasks": 1, "fused": 0, "unfused": [("numpy.sort", 1)]}


def test_tasks_of_a_batch_are_counted_one_by_one(counts: TaskCounts) -> None:
    x = da.from_array(np.arange(24.0), chunks=4) + 1
    with dask.config.set(SETTINGS | BATCHES), gpusched.enable():
        (optimised,) = dask.optimize(x.sum())
        called = [str(getattr(node, "func", "")) for node in optimised.dask.values()]
        assert sum("batch" in name for name in called) == 2
        counts.test = "fused"
        optimised.compute(scheduler="sync", optimize_graph=False)
    counts.test = "plain"
    x.sum().compute(scheduler="sync")
    assert counts.fused == {"fused": 6}
    # The sums of each chunk, of four and of two of them, and of these.
    assert [counts.unfused[test].total() for test in ("fused", "plain")] == [3, 9]


def test_kernels_of_a_task_s_own_computation_are_not_its_own(counts: TaskCounts) -> None:
    def computing() -> Any:
        return (chunked() + 1).compute(scheduler="sync") + 1

    with dask.config.set(SETTINGS), gpusched.enable():
        dask.get({"x": Task("x", computing)}, "x")
    assert counts.fused["it"] == 2
    assert counts.unfused["it"].total() == 1


def test_functions_are_found_in_whatever_holds_them() -> None:
    inner = Task("d", divmod, TaskRef("y"), TaskRef("x"))
    fused = Task.fuse(inner, Task("m", compose(abs, partial(max, 1)), TaskRef("d")))
    assert list(called(fused)) == [divmod, max, abs]
    nested = Task("x", len, Task(None, min, TaskRef("y")), partial(abs, 1))
    assert list(called(nested)) == [min, len]
    assert list(called(DataNode("x", 1))) == []
