"""Tasks on one large chunk become one: tasks, launches and bytes are counted, values compared."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from operator import getitem
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from distributed import Scheduler
from distributed.core import Status
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched import roles
from gpusched.graph import disable, enable, optimisation, optimize
from gpusched.graph.passes import merging
from gpusched.graph.passes.merging import merge_bytes, merged
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.plan import shortage

SETTINGS = {
    "gpusched.fusion.merge-bytes": 1,
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.strict": True,
    "gpusched.batching.tasks": 0,
}
CHUNKS = 4


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(merging, "threads", lambda: 2)
    with dask.config.set(SETTINGS), enable():
        gpusched.reset_statistics()
        yield


def numbers(rows: int = 40, seed: int = 0) -> Any:
    """Return an array of four chunks that are in memory."""
    values = np.random.default_rng(seed).uniform(0.5, 2, (rows, 5))
    return da.from_array(values, chunks=(rows // CHUNKS, 5)).persist(scheduler="sync")


def run(*arrays: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in dask.persist(*arrays, scheduler="sync")]


def unfused(*arrays: Any) -> list[np.ndarray]:
    with disable():
        return run(*arrays)


def launches() -> int:
    return gpusched.statistics().launches


def test_what_several_results_share_is_computed_once_and_never_written() -> None:
    x, y = numbers(), numbers(seed=1)
    shared = np.sqrt(x) * y
    results = shared + 1, np.exp(shared) - x, 1 / (shared + y)
    found = run(*results)
    assert launches() == CHUNKS
    assert gpusched.statistics().bytes_read == x.nbytes + y.nbytes
    assert gpusched.statistics().bytes_written == 3 * x.nbytes
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_what_is_made_of_results_of_two_chunks_joins_their_tasks() -> None:
    x, y = numbers(), numbers(seed=1)
    one, other = np.sqrt(x) * x, np.exp(y) - y
    results = one - 2, other - 3, one * other
    found = run(*results)
    assert launches() == CHUNKS
    assert gpusched.statistics().bytes_read == x.nbytes + y.nbytes
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_compute_joins_the_chunks_of_several_results() -> None:
    x = numbers()
    shared = np.sqrt(x) * x
    found = dask.compute(shared + 1, np.exp(shared) - x, scheduler="sync")
    assert launches() == CHUNKS
    for value, plain in zip(found, unfused(shared + 1, np.exp(shared) - x), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_inputs_that_are_made_by_others_are_taken_once() -> None:
    made = numbers().map_blocks(lambda block: np.sort(block, axis=1), dtype="f8")
    twice, plus = made * 2 + 1, (made + 1) * made
    found = run(twice, plus)
    assert launches() == CHUNKS
    np.testing.assert_array_equal(found[0], unfused(twice)[0])
    np.testing.assert_array_equal(found[1], unfused(plus)[0])


def test_a_result_that_others_use_too_is_a_result() -> None:
    x = numbers()
    shared = x * 2 + 1
    found = run(shared, shared * shared - 3)
    assert launches() == CHUNKS
    np.testing.assert_array_equal(found[0], unfused(shared)[0])


def test_no_chunk_is_kept_for_longer_than_in_plain_dask() -> None:
    """Two chunks that other tasks take one after the other are made one after the other."""
    x = numbers()
    shared = x * 2 + 1
    left, right = np.sqrt(shared) + 1, np.exp(shared) - 1
    results = [part.map_blocks(lambda block: np.sort(block, axis=1), dtype="f8")
               for part in (left, right)]  # fmt: skip
    found = run(*results)
    assert launches() == 3 * CHUNKS
    np.testing.assert_allclose(found[1], unfused(results[1])[0], rtol=1e-14)


def softmax(x: Any) -> tuple[Any, Any]:
    largest = x.max(axis=1, keepdims=True)
    powers = np.exp(x - largest)
    sums = powers.sum(axis=1, keepdims=True)
    return powers / sums, largest + np.log(sums)


def test_reductions_along_an_axis_of_one_chunk_are_steps_of_one_task() -> None:
    x = numbers()
    found = run(*softmax(x))
    # The largest, the sums, both results. No exponentials are written, and no parts are joined.
    assert launches() == 4 * CHUNKS
    assert gpusched.statistics().bytes_written == x.nbytes + 3 * x.nbytes // x.shape[1]
    for value, plain in zip(found, unfused(*softmax(x)), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_reductions_that_are_asked_for_too_stay_results() -> None:
    x = numbers()
    largest = x.max(axis=1, keepdims=True)
    results = largest, np.exp(x - largest), x.min(axis=1)
    found = run(*results)
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_one_chunk_are_one_task(dtype: str) -> None:
    values = np.random.default_rng(0).uniform(0.5, 2, (800, 600)).astype(dtype)
    x = da.from_array(values, chunks=(400, 300)).persist(scheduler="sync")
    statistics = [f(x, axis=axis) for axis in (0, 1) for f in (da.mean, da.std)]
    least = x.nbytes // CHUNKS
    with dask.config.set({"gpusched.fusion.merge-bytes": least + 1}):
        assert not merged_keys(*statistics)
    with dask.config.set({"gpusched.fusion.merge-bytes": least}):
        assert {key[1:] for key in merged_keys(*statistics)} == set(np.ndindex(2, 2))
        found = run(*statistics)
    # A chunk is read once for all of its columns, and once for all of its rows.
    assert 2 <= gpusched.statistics().bytes_read / x.nbytes < 2.5
    for value, plain in zip(found, unfused(*statistics), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_reductions_of_what_takes_long_stay_apart() -> None:
    """Each computes it in its own loop, and none is written."""
    x = numbers(400)
    with dask.config.set({"gpusched.fusion.merge-bytes": 1000}):
        assert not merged_keys(np.exp(x).sum(axis=0), (x * 2 + 1).max(axis=0))


def test_reductions_of_what_is_cheap_are_one_task() -> None:
    x = numbers(400)
    results = np.sqrt(x).sum(axis=0), (x * 2 + 1).max(axis=0), (x - 1).std(axis=0)
    with dask.config.set({"gpusched.fusion.merge-bytes": 1000}):
        assert len(merged_keys(*results)) == CHUNKS
        found = run(*results)
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-13)


def normalised(block: Any, axis: Any = None, keepdims: Any = None) -> Any:
    return block / np.sum(block, axis=1, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, "time", np.int64(1)])
def test_functions_with_the_options_of_reductions_stay_what_they_are(axis: Any) -> None:
    x = numbers()
    own = x.map_blocks(normalised, axis=axis, keepdims=True, dtype="f8")
    found = run(own, x + 1, own * 2)
    for value, plain in zip(found, unfused(own, x + 1, own * 2), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_medians_that_several_tasks_take() -> None:
    """Of them dask tells a size without the axis that is reduced."""
    median = da.median(da.from_array(np.arange(40.0), chunks=-1), axis=0)
    found = run(median + 1, median * 2)
    assert [float(value) for value in found] == [20.5, 39]


def test_reductions_that_leave_much_stay_apart() -> None:
    """Their results would be kept for all of them, where plain dask keeps one after the other's."""
    x = da.from_array(np.ones((8, 20)), chunks=(2, 20)).persist(scheduler="sync")
    with dask.config.set({"gpusched.fusion.merge-bytes": x.nbytes // CHUNKS // 2}):
        assert not merged_keys(x.sum(axis=0), x.max(axis=0))
        assert merged_keys(x.sum(), x.max())


@pytest.mark.processes
def test_tasks_that_are_put_together_are_the_same_in_every_process(tmp_path: Path) -> None:
    """dask goes through sets of keys: kernels in another order would be compiled again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import dask, dask.array as da, gpusched, numpy as np\n"
        "from gpusched.backends.cache import kernels\n"
        "from gpusched.graph.passes import merging\n"
        "merging.threads = lambda: 1\n"
        "x = da.from_array(np.ones((8, 5)), chunks=(2, 5), name='x').persist()\n"
        "with gpusched.enable(), dask.config.set({'gpusched.fusion.merge-bytes': 1}):\n"
        "    y = np.sqrt(x) * x\n"
        "    dask.persist(y + 1, np.exp(y), y - x, x * 3, scheduler='sync')\n"
        "    dask.persist(x.sum(axis=0), x.std(axis=0), x.max(axis=1), scheduler='sync')\n"
        "print(sorted(kernel.name for kernel in kernels))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, script], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=300,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(found) == 1, found


def test_a_sum_by_itself_has_nothing_to_fuse() -> None:
    with dask.config.set({"gpusched.fusion.minimum-operations": 2}):
        run(numbers().sum(axis=1), numbers(seed=1).max(axis=1, keepdims=True))
    assert launches() == 0


def test_what_does_not_fit_is_run_in_parts() -> None:
    x = numbers()
    shared = np.sqrt(x) * 2
    results = shared + x, shared - x * 3
    with shortage.in_pieces(3):
        found = run(*results)
    assert launches() > CHUNKS
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_array_equal(value, plain)


def test_chunks_stay_apart() -> None:
    x = numbers()
    total = (x * 2 + 1).sum(axis=0)
    results = x - total, (x + total) * 2
    found = run(*results)
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_small_chunks_are_left_alone() -> None:
    x = numbers()
    shared = np.sqrt(x) * 2
    with dask.config.set({"gpusched.fusion.merge-bytes": x.nbytes}):
        run(shared + x, shared - x * 3)
    assert launches() > CHUNKS


@pytest.mark.parametrize("setting", [None, 0, "0"])
def test_none_are_put_together_if_so_configured(setting: object) -> None:
    x = numbers()
    shared = np.sqrt(x) * 2
    with dask.config.set({"gpusched.fusion.merge-bytes": setting}):
        run(shared + x, shared - x * 3)
    assert launches() > CHUNKS


def test_a_setting_that_is_no_size_is_named() -> None:
    with (
        dask.config.set({"gpusched.fusion.merge-bytes": "much"}),
        pytest.raises(ValueError, match=r"gpusched\.fusion\.merge-bytes cannot be 'much': write"),
    ):
        merge_bytes()


def test_fewer_chunks_than_threads_are_left_to_several_threads() -> None:
    x = da.from_array(np.ones((40, 5)), chunks=-1).persist(scheduler="sync")
    shared = np.sqrt(x) * 2
    found = run(shared + x, shared - x * 3)
    np.testing.assert_array_equal(found[1], unfused(shared - x * 3)[0])
    assert launches() == 2


def test_a_cluster_has_the_threads_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask.system.CPU_COUNT", 64)
    clusters: list[Any] = []
    monkeypatch.setattr(Scheduler, "_instances", clusters)
    assert roles.threads() == 64
    clusters += [
        SimpleNamespace(total_nthreads=threads, status=status)
        for threads, status in ((3, Status.running), (0, Status.init), (8, Status.closed))
    ]
    assert roles.threads() == 3, "the machine of the scheduler computes nothing"


def test_tasks_that_are_to_run_in_a_way_of_their_own_stay_alone() -> None:
    x = numbers()
    with dask.annotate(resources={"GPU": 1}):
        shared = np.sqrt(x) * 2
    run(shared + x * 2, shared - x * 3)
    assert launches() > CHUNKS


def test_explain_tells_what_runs() -> None:
    x = numbers()
    shared = np.sqrt(x) * x
    results = [shared + 1, np.exp(shared) - x]
    told = gpusched.explain(results)
    run(*results)
    assert told.totals.launches == launches() == CHUNKS
    assert {kernel.name for kernel in told.kernels} == set(gpusched.statistics().kernels)
    assert "merged-" in str(told)


def optimised(*arrays: Any) -> dict[Any, Any]:
    graph = HighLevelGraph.merge(*(x.dask for x in arrays))
    return dict(optimize(graph, list(flatten([x.__dask_keys__() for x in arrays]))))


def alone(tasks: dict[Any, Any]) -> list[Any]:
    """Return the keys of the tasks that do nothing but take an item out of another's result."""
    return [key for key, node in tasks.items() if getattr(node, "func", None) is getitem]


def test_small_items_are_taken_by_the_tasks_that_need_them() -> None:
    x = numbers(400)
    results = x.mean(axis=0), x.std(axis=0), x.max(axis=0)
    with dask.config.set({"gpusched.fusion.merge-bytes": 1000}):
        tasks, found, told = optimised(*results), run(*results), gpusched.explain(results)
    assert not alone(tasks)
    ran = sum(isinstance(node, Task) for node in tasks.values())
    assert told.totals.tasks_after == ran == CHUNKS + 3
    for value, plain in zip(found, unfused(*results), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_small_items_that_are_asked_for_stay_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimisation, "FEW", 0)
    x = numbers(400)
    largest, smallest = x.max(axis=1), x.min(axis=1)
    with dask.config.set({"gpusched.fusion.merge-bytes": 1024}):
        tasks = optimised(largest, smallest, largest + smallest)
        assert len(alone(tasks)) == 3 * CHUNKS
        found = run(largest, smallest, largest + smallest)
    np.testing.assert_array_equal(found[2], found[0] + found[1])


def test_tasks_that_take_items_are_in_batches_as_before() -> None:
    x = da.concatenate([numbers(400)] * 8, axis=1).rechunk((100, 40)).persist(scheduler="sync")
    across = (x.max(axis=1, keepdims=True) - x.min(axis=1, keepdims=True).T).sum()
    settings = {"gpusched.fusion.merge-bytes": 2048, "gpusched.batching.tasks": 256,
                "gpusched.batching.least": 2}  # fmt: skip
    with dask.config.set(settings):
        tasks, found = optimised(across), run(across)
        assert len(merged_keys(across)) == CHUNKS and not alone(tasks)
        told = gpusched.explain(across).batches
    # Each pair of chunks is in a batch with others.
    ran = sum(isinstance(node, Task) for node in tasks.values())
    assert told.tasks == ran < CHUNKS**2
    np.testing.assert_allclose(found[0], unfused(across)[0], rtol=1e-14)


def test_what_is_computed_of_items_is_fused_whatever_lies_beside_them() -> None:
    """The mean's first step is a dict, and no array."""
    x = numbers(400)
    largest = x.max(axis=1, keepdims=True)
    shifted = largest - x.mean()
    result = np.exp(-shifted) * np.sin(shifted) + np.sqrt(largest)
    with dask.config.set({"gpusched.fusion.merge-bytes": 900}):
        assert merged_keys(result) and not alone(optimised(result))
        gpusched.reset_statistics()
        found = run(result)
    # The largest of each chunk, the mean's first step, and what is computed of both.
    assert launches() == 3 * CHUNKS
    assert not gpusched.statistics().breaks
    np.testing.assert_allclose(found[0], unfused(result)[0], rtol=1e-13)


def test_items_of_unknown_size_are_not_small() -> None:
    x = numbers(400)
    some = x[x[:, 0] > 1].persist(scheduler="sync")
    first = np.sqrt(some) * 2
    second = np.exp(some) - first
    sorts = [lambda block: np.sort(block, axis=1), lambda block: -np.sort(block, axis=1)]
    users = [part.map_blocks(sort, dtype="f8") for part in (first, second) for sort in sorts]
    with dask.config.set({"gpusched.fusion.merge-bytes": 1024}):
        tasks = optimised(*users, x + 1)
    takers = [node for key, node in tasks.items() if str(key).startswith("('lambda")]
    assert len(takers) == len(users) * CHUNKS
    assert not any(str(k).startswith("('merged") for node in takers for k in node.dependencies)


def merged_keys(*arrays: Any) -> set[Any]:
    """Return the keys of the tasks that are several."""
    return {key for key in optimised(*arrays) if str(key[0]).startswith("merged-")}


def test_the_same_results_have_the_same_names_and_others_have_others() -> None:
    """On a cluster, a name stands for one result."""
    x = numbers()
    shared = np.sqrt(x) * x
    a, b, c = shared + 1, np.exp(shared) - x, shared * x
    names = merged_keys(a, b)
    assert {key[1:] for key in names} == {(k, 0) for k in range(CHUNKS)}
    assert merged_keys(a, b) == names
    assert not names & merged_keys(a, c)


def test_tasks_whose_results_have_fewer_axes_have_one_name_for_all_chunks() -> None:
    shared = np.exp(numbers()) * 2
    names = merged_keys(shared - 1, np.sqrt(shared[:, 0]))
    assert len(names) == CHUNKS and len({name for name, *_ in names}) == 1


def test_tasks_with_the_same_results_in_another_order_have_other_names() -> None:
    """Two graphs may be computed at once: a cluster computes what has one name once."""
    shared = np.exp(numbers()) * 2
    made: dict[Any, str] = {}
    for order in itertools.permutations((shared + 1, shared + 4, shared.sum(axis=1))):
        for key, node in optimised(*order).items():
            if str(key[0]).startswith("merged-"):
                found = tokenize(node.func)
                assert made.setdefault(key, found) == found
    assert len(made) > CHUNKS


def test_a_graph_that_would_have_a_cycle_has_none() -> None:
    """`last` needs both `first` and what a function that is not recorded makes of it."""
    x = numbers()
    first = np.sqrt(x) + x
    between = first.map_blocks(lambda block: np.sort(block, axis=1), dtype="f8")
    last = first * between - 1
    found = run(first, last, between + 2 * x)
    for value, plain in zip(found, unfused(first, last, between + 2 * x), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-14)


def test_the_graph_that_is_given_stays_as_it_is() -> None:
    x = numbers()
    tasks = {k: Task(k, np.exp, TaskRef("x")) for k in [("a", 0), ("b", 0)]}
    before = dict(tasks)
    merged(Table(tasks, list(tasks), Sizes(x.dask.layers)), 1)
    assert tasks == before


@given(st.data())
def test_any_program_gives_what_plain_dask_gives(data: st.DataObject) -> None:
    """Sums, chains, views, reductions and functions of the user's own, used by any number."""
    arrays = [numbers(12), numbers(12, seed=1)]
    steps = [
        lambda a, b: a + 2 * b,
        lambda a, b: np.sqrt(abs(a)) * b,
        lambda a, b: a - b.mean(axis=0),
        lambda a, b: a * b.sum() - b.max() * b.std(axis=0),
        lambda a, b: a[:, ::-1] + b,
        lambda a, b: da.maximum(a, b).sum(axis=1, keepdims=True) * b,
        lambda a, b: a.max(axis=1, keepdims=True) * b + a.min(axis=1)[:, None],
        lambda a, b: a + b.mean(axis=1, keepdims=True) * b.std(axis=1, keepdims=True),
        lambda a, b: a.map_blocks(lambda block: np.sort(block, axis=1), dtype="f8") - b,
        lambda a, b: a.rechunk((4, 5)).rechunk((2, 5)) * 3 - b,
    ]
    for _ in range(data.draw(st.integers(2, 7))):
        step = data.draw(st.sampled_from(steps))
        arrays.append(step(data.draw(st.sampled_from(arrays)), data.draw(st.sampled_from(arrays))))
    wanted = data.draw(st.lists(st.sampled_from(arrays[2:]), min_size=1, max_size=3))
    # With the second, a number is little of what a chunk of three rows has.
    least = data.draw(st.sampled_from([1, arrays[0].nbytes // CHUNKS]))
    sizes = {"gpusched.fusion.minimum-elements": 1 << 20, "gpusched.fusion.merge-bytes": least}
    with dask.config.set(sizes):
        found = run(*wanted)
    for value, plain in zip(found, unfused(*wanted), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-12)
