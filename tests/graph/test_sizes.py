"""What dask tells of the sizes of chunks, and of what reductions leave of them."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.array.core import finalize
from dask.array.optimization import optimize

import gpusched
from gpusched.graph.functions.reductionsteps import is_first_step
from gpusched.graph.passes.fitting import Needed
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.programs.program import Program


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
    assert sizes.of_first_step(step) == 8 * kept
    # Counts and totals, and of variances three more arrays of numbers of eight bytes.
    for name, arrays in (("mean", 2), ("var", 5)):
        sizes, step = step_of(getattr(x, name)(axis=axis))
        left = step({key: np.ones((5, 6, 7), "f4") for key in step.dependencies})
        assert sizes.of_first_step(step) == arrays * 8 * kept
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
    nodes = (node for node in tasks.values() if type(node) is Task)
    assert {sizes.taken(tasks, node).extra for node in nodes} == {2 * 8 * 200}


def test_task_that_reduces_takes_what_it_reduces_and_little_more() -> None:
    x = da.ones((40, 100), chunks=(20, 100)).persist(scheduler="sync")
    found = taken(((x - 1) ** 2).sum(axis=1, keepdims=True))
    assert found.extra == 2 * 8 * 20 * 100 and found.whole


def taken(array: Any) -> Needed:
    """Return what the first of the tasks takes that dask's optimisation leaves."""
    tasks = optimize(array.dask, array.__dask_keys__())
    node = next(node for node in tasks.values() if type(node) is Task)
    return Sizes(array.dask.layers).taken(tasks, node)


CHUNK = 8 * 1000


def chunk(name: str) -> Any:
    make = {"random": lambda: da.random.default_rng(0).random(1000, chunks=1000),
            "arange": lambda: da.arange(1000, chunks=1000, dtype="f8"),
            "ones": lambda: da.ones(1000, chunks=1000)}  # fmt: skip
    return make[name]()


@pytest.mark.parametrize(
    ("name", "program", "most"),
    [
        # What is drawn is there until the last call that reads it, beside two others.
        ("random", lambda x: (da.sqrt(x * 2 + 1) * x).sum(), 3),
        ("arange", lambda x: da.sqrt(x * 2 + 1) * x + 1, 3),
        ("random", lambda x: x.std(), 1),
        ("random", lambda x: x, 1),
        # One element, which all others show.
        ("ones", lambda x: (da.sqrt(x * 2 + 1) * x).sum(), 2),
        ("ones", lambda x: x.sum(), 0),
        ("arange", lambda x: x.map_blocks(np.sort), 2),
    ],
)
def test_task_takes_the_results_that_are_alive_at_once(name: str, program: Any, most: int) -> None:
    assert taken(program(chunk(name))).extra // CHUNK == most


def test_what_joins_all_chunks_is_as_large_as_they_are() -> None:
    x = da.arange(1000, chunks=100, dtype="f8")
    keys = x.__dask_keys__()
    node = Task("all", finalize, List(*map(TaskRef, keys)))
    assert Sizes(x.dask.layers).taken(dict(x.dask), node) == Needed(CHUNK, True)


def test_unknown_sizes_are_said_to_be_unknown() -> None:
    x = chunk("random")
    found = taken(x[x > 0.5] * 2)
    assert not found.whole and found.extra >= CHUNK


def test_calls_in_arguments_are_calls_too() -> None:
    x = da.random.default_rng(0).random(1000, chunks=1000)
    y = x + 1
    inner = Task(None, np.negative, TaskRef((x.name, 0)))
    node = Task((y.name, 0), np.add, inner, 1)
    fused = Task.fuse(x.dask[x.name, 0], node, key=node.key)
    found = Sizes(y.dask.layers).taken({}, fused)
    # That of the call inside, which has no layer, is not known; what it reads is there until then.
    assert (found.extra, found.whole) == (CHUNK, False)


@pytest.mark.parametrize(
    ("function", "whole"), [(lambda b: b * 2, True), (np.negative, True), (np.sort, False)]
)
def test_programs_with_functions_of_others_may_take_more(
    function: Any, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusched.graph.optimisation.cluster_threads", lambda: 2)
    x = da.from_array(np.ones(1000), chunks=500)
    with gpusched.enable():
        (y,) = dask.optimize((x + 1).map_blocks(function, dtype="f8"))
    programs = [p for n in y.dask.values() if isinstance(p := getattr(n, "func", None), Program)]
    assert programs and all(each.remaining.whole is whole for each in programs)


def test_only_arrays_have_lengths() -> None:
    table = pd.DataFrame({"itemsize": [1.0], "shape": [2.0]})
    tasks = {k: DataNode(k, v) for k, v in {"a": np.ones((2, 3), "f4"), "t": table}.items()}
    sizes = Sizes({})
    assert sizes.lengths(tasks, "a") == (4, (2, 3))
    assert sizes.lengths(tasks, "t") is None


def test_arrays_of_dataframes_are_batched_with_others() -> None:
    pytest.importorskip("pyarrow")
    from dask import dataframe as dd

    table = pd.DataFrame(np.random.default_rng(0).random((30, 4)))
    settings = {"fusion.minimum-elements": 0, "fusion.minimum-operations": 0,
                "batching.least": 1, "batching.tasks": 3}  # fmt: skip
    given = {f"gpusched.{name}": value for name, value in settings.items()}
    with dask.config.set(given), gpusched.enable():
        found = dd.from_pandas(table, npartitions=2).mean(axis="index").values.compute()
    np.testing.assert_allclose(found, table.mean(axis="index"))
