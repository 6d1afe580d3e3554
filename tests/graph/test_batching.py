"""Neighbouring tiny tasks become one: tasks are counted, and values and names compared."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._expr import FinalizeCompute
from dask._task_spec import Task, TaskRef
from dask.base import collections_to_expr
from dask.core import flatten
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st

from gpusched import explain
from gpusched.graph import disable, enable
from gpusched.graph.passes.grouping import Grouping, Limits, limits
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite
from gpusched.graph.running.batch import Batch, Parts, packed
from gpusched.plan.plan import Register, Spread, substitute
from gpusched.record.steps import ProgramStep

SETTINGS = {
    "gpusched.batching.least": 2,
    "gpusched.batching.tasks": 8,
    "gpusched.fusion.strict": True,
}


@pytest.fixture(autouse=True)
def small_batches() -> Iterator[None]:
    with dask.config.set(SETTINGS):
        yield


def graph_of(array: Any) -> dict[Any, Any]:
    """Return the graph that `compute` runs."""
    with enable():
        return dict(FinalizeCompute(collections_to_expr([array])).optimize().__dask_graph__())


def tasks(array: Any) -> int:
    return sum(isinstance(node, Task) for node in graph_of(array).values())


def plain_tasks(array: Any) -> int:
    with dask.config.set({"gpusched.batching.tasks": 0}):
        return tasks(array)


def check(array: Any) -> None:
    """Compare values, and the keys of persisted chunks, with those of plain dask."""
    with disable():
        expected = array.compute(scheduler="sync")
    with dask.config.set({"gpusched.batching.tasks": 0}), enable():
        unbatched = array.compute(scheduler="sync")
    with enable():
        found = array.compute(scheduler="sync")
        kept = array.persist(scheduler="sync")
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, unbatched)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert set(kept.dask) == set(flatten(array.__dask_keys__()))
    with disable():
        np.testing.assert_array_equal(kept.compute(scheduler="sync"), found)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape)


class TestCounts:
    def test_chunks_that_are_joined(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        assert plain_tasks(x * 2 + 1) == 65
        assert tasks(x * 2 + 1) == 64 // 8 + 1
        check(x * 2 + 1)

    def test_a_tree_of_sums_ends_in_few(self) -> None:
        x = da.from_array(numbers(2560), chunks=10)
        with dask.config.set({"gpusched.batching.tasks": 64}):
            # Each batch makes 64 chunks, and sums them in fours: 64, 16, 4, 1.
            assert plain_tasks((x * 2).sum()) == 256 + 64 + 16 + 4 + 1
            assert tasks((x * 2).sum()) == 4 + 1
            check((x * 2).sum())

    def test_batches_are_left_for_all_threads(self) -> None:
        x = da.from_array(numbers(320), chunks=10)
        with dask.config.set({"gpusched.batching.least": 16, "gpusched.batching.tasks": 256}):
            assert tasks(x + 1) == 16 + 1

    def test_bytes_are_bounded(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        with dask.config.set({"gpusched.batching.bytes": 400}):
            assert tasks(x + 1) == 64 // 5 + 1 + 1

    def test_large_chunks_are_not_batched(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        with dask.config.set({"gpusched.batching.chunk-bytes": 79}):
            assert tasks(x + 1) == plain_tasks(x + 1)

    def test_zero_switches_it_off(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        with dask.config.set({"gpusched.batching.tasks": 0}):
            assert tasks(x + 1) == 65

    def test_a_function_that_may_take_any_time_is_not_batched(self) -> None:
        x = da.from_array(numbers(640), chunks=10)

        def slow(chunk: np.ndarray) -> np.ndarray:
            return np.array([float(str(value)) for value in chunk])

        assert tasks(x.map_blocks(slow, dtype="f8")) == 65
        assert tasks(x.map_blocks(lambda chunk: np.sqrt(chunk) + 1, dtype="f8")) == 9

    def test_a_file_is_not_read_in_batches(self) -> None:
        class Source:
            shape, dtype, ndim = (640,), np.dtype("f8"), 1

            def __getitem__(self, index: Any) -> Any:
                return np.ones(640)[index]

        x = da.from_array(Source(), chunks=10, asarray=True)
        assert tasks(x) == plain_tasks(x)
        check(x + 1)

    def test_chunks_that_are_asked_for_stay(self) -> None:
        x = da.from_array(numbers(640), chunks=10) + 1
        with enable():
            kept = x.persist(scheduler="sync")
        assert len(kept.dask) == 64

    def test_annotated_tasks_stay_by_themselves(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        with dask.annotate(resources={"GPU": 1}):
            y = x + 1
        assert tasks(y) == 65

    def test_layers_that_dask_is_told_not_to_fuse_stay(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        with dask.config.set({"optimization.fuse.active": False}):
            assert tasks(x + 1) >= 65
            check(x + 1)

    def test_batches_of_one_form_share_a_program(self) -> None:
        graph = graph_of(da.ones(640, chunks=10) * 2 + 1)
        batches = [n for n in graph.values() if isinstance(n, Task) and "batch" in n.func.__name__]
        assert len({id(node.func) for node in batches if len(node.args) == 2}) == 1


class TestValues:
    @pytest.mark.parametrize(
        "build",
        [
            lambda x: x - x.mean(axis=0),
            lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
            lambda x: x + x[::-1, ::-1],
            lambda x: x @ x.T,
            lambda x: x.rechunk((7, 3)) * 2,
            lambda x: x.map_overlap(lambda z: z * 2, depth=1, boundary="reflect"),
            lambda x: x.cumsum(axis=0),
            lambda x: x.argmax(axis=1),
            lambda x: da.concatenate([x, x * 2]).max(axis=1),
            lambda x: da.stack([x, -x]).sum(axis=0),
            lambda x: x[3:20:2, 5:] + 1,
            lambda x: x[[1, 5, 2]] + 1,
            lambda x: x[x > 0.5],
            lambda x: (x + 1).reshape(-1) * 2,
            lambda x: da.where(x > 0.5, x, -x),
            lambda x: x[:0] + 1,
            lambda x: x.astype("f4").sum(axis=0),
            lambda x: da.ma.filled(da.ma.masked_greater(x, 0.5), 3),
            lambda x: da.topk(x, 3, axis=0),
        ],
    )
    def test_same_as_plain(self, build: Callable[[Any], Any]) -> None:
        check(build(da.from_array(numbers(24, 20), chunks=(4, 4))))

    @pytest.mark.parametrize("dtype", ["M8[s]", "U3", "O", "i4,f8", "?"])
    def test_other_dtypes(self, dtype: str) -> None:
        values = np.arange(64).astype(dtype)
        x = da.from_array(values, chunks=4)
        with enable():
            np.testing.assert_array_equal(x[::-1].compute(scheduler="sync"), values[::-1])

    def test_several_arrays_at_once(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        wanted = [x + 1, (x + 1).sum(), x[:100] * 2]
        with disable():
            expected = dask.compute(*wanted, scheduler="sync")
        with enable():
            found = dask.compute(*wanted, scheduler="sync")
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b)

    def test_chunks_that_were_kept(self) -> None:
        with enable():
            x = (da.from_array(numbers(640), chunks=10) + 1).persist(scheduler="sync")
        assert tasks(x * 2 + 1) < 20
        check((x * 2 + 1).sum())

    def test_an_error_names_the_chunk(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        y = da.from_array(numbers(640), chunks=10)
        bad = da.map_blocks(np.reshape, x + y, (3, 3), dtype="f8", chunks=x.chunks)
        with enable(), pytest.raises(ValueError, match="reshape") as raised:
            bad.compute(scheduler="sync")
        notes = "\n".join(raised.value.__notes__)
        assert re.search(rf"for chunk \('{bad.name}', \d+\), one of 8 tasks in a batch", notes)


@st.composite
def arrays(draw: Any) -> Any:
    """Build a small program of arrays of one shape."""
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    chunks = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    made = [da.from_array(numbers(*shape), chunks=chunks), da.ones(shape, chunks=chunks)]
    for _ in range(draw(st.integers(1, 6))):
        a, b = (draw(st.sampled_from(made)) for _ in range(2))
        operation = draw(st.integers(0, 7))
        made.append(
            [
                lambda a, b: a + b * 2,
                lambda a, b: a - b.mean(axis=0),
                lambda a, b: a * b.sum(axis=1, keepdims=True),
                lambda a, b: a[::-1] + b,
                lambda a, b: a.rechunk((chunks[1], chunks[0])).rechunk(chunks) - b,
                lambda a, b: a.map_overlap(lambda z: z + 1, depth=1, boundary="periodic") + b,
                lambda a, b: da.concatenate([a, b])[: shape[0]],
                lambda a, b: da.where(a > b, a, b),
            ][operation](a, b)
        )
    return draw(st.sampled_from([made[-1], made[-1].sum(), made[-1].max(axis=0)]))


@given(arrays(), st.integers(1, 6), st.integers(2, 20), st.sampled_from([100, 1000, 10**6]))
def test_programs_have_the_same_values_and_keys(array: Any, least: int, most: int, nbytes: int) -> (
    None
):  # fmt: skip
    chosen = {"least": least, "tasks": most, "bytes": nbytes}
    with dask.config.set({f"gpusched.batching.{k}": v for k, v in chosen.items()}):
        check(array)


@given(st.data())
def test_groups_form_no_cycle(data: Any) -> None:
    count = data.draw(st.integers(1, 40))
    operands = {
        k: data.draw(st.lists(st.integers(0, k - 1), max_size=4, unique=True)) if k else []
        for k in range(count)
    }
    tiny = data.draw(st.sets(st.integers(0, count - 1)))
    most = data.draw(st.integers(2, 10))
    grouping = Grouping(
        operands, dict.fromkeys(operands, 8), {}, tiny, set(), Limits(most, 200, 8, 1)
    )
    groups = grouping.run()
    assert sorted(key for group in groups for key in group.members) == list(operands)
    number = {key: k for k, group in enumerate(groups) for key in group.members}
    after: dict[int, set[int]] = {k: set() for k in range(len(groups))}
    for key, needed in operands.items():
        after[number[key]] |= {number[other] for other in needed} - {number[key]}
    TopologicalSorter(after).prepare()
    assert all(other < k for k, others in after.items() for other in others)
    for group in groups:
        assert len(group.members) == 1 or (set(group.members) <= tiny and group.nbytes <= 200)


def test_futures_are_references() -> None:
    class Future(TaskRef):
        pass

    functions = Functions()
    graph = {k: Task(k, np.add, ref("x"), 1) for k, ref in (("a", TaskRef), ("b", Future))}
    for node in rewrite(graph, functions).values():
        assert isinstance(node.func, Program)
        assert [type(arg) for arg in node.args] == [TaskRef]
        assert node({"x": np.ones(3)}).tolist() == [2, 2, 2]


@pytest.mark.parametrize(("nbytes", "together"), [(8192, False), (1024, True)])
def test_results_that_are_scattered_are_not_kept_together(nbytes: int, together: bool) -> None:
    # 16 chunks, each of which is used by 8 tasks that use none of the others.
    chunks = [f"chunk-{k}" for k in range(16)]
    operands: dict[str, list[str]] = {chunk: [] for chunk in chunks}
    for k in range(128):
        operands[f"user-{k}"] = [chunks[k // 8]]
    sizes = dict.fromkeys(operands, nbytes)
    bounds = Limits(tasks=16, nbytes=16 * nbytes, chunk=nbytes, least=1)
    groups = Grouping(operands, sizes, {}, set(operands), set(), bounds).run()
    made = [group.members for group in groups if group.members[0] in chunks]
    assert made == ([chunks] if together else [[chunk] for chunk in chunks])
    users = [group.members for group in groups if group.members[0] not in chunks]
    assert users == [[f"user-{k}" for k in range(n, n + 8)] for n in range(0, 128, 8)]


class TestParts:
    def test_functions_that_programs_replace_are_not_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(np, "multiply", lambda a, b: a * b + 7)
        found = packed([np.ones((2, 3)), np.ones(4)])
        assert [part.shape for part in found] == [(2, 3), (4,)]

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
    def test_they_are_the_chunks(self, shapes: list[tuple[int, int]]) -> None:
        chunks = [numbers(*shape) for shape in shapes]
        found = packed(chunks)
        assert isinstance(found, Parts)
        for chunk, each in zip(chunks, (found[k] for k in range(len(found))), strict=True):
            np.testing.assert_array_equal(each, chunk)
            assert each.shape == chunk.shape

    @pytest.mark.parametrize(
        "chunks",
        [
            [np.ones(3), np.ones(3, "f4")],
            [np.ones((3, 3)).T[:, ::2], np.ones(3)],
            [np.broadcast_to(1.0, 5), np.ones(5)],
            [np.ma.ones(3), np.ones(3)],
            [np.array([None]), np.array([None])],
            [3.0, 4.0],
            [{"n": 1}, {"n": 2}],
        ],
    )
    def test_others_stay_as_they_are(self, chunks: list[Any]) -> None:
        found = packed(chunks)
        assert isinstance(found, tuple)
        assert all(a is b for a, b in zip(found, chunks, strict=True))


def test_runs_are_items_of_lists() -> None:
    source = np.arange(6)
    found = substitute([Spread([Register(1, slice(1, 3)), Register(1, 5)]), (Register(0),)],
                       ["made", source])  # fmt: skip
    assert found == [[1, 2, 5], ("made",)]


def test_a_batch_of_keyword_arguments() -> None:
    step = ProgramStep(np.sum, (Register(1),), {"axis": Register(2)})
    assert Batch((step,), (0,))(("a",), np.ones((2, 3)), 0).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tasks", "many", "gpusched.batching.tasks cannot be 'many'"),
        ("tasks", -1, "gpusched.batching.tasks cannot be -1"),
        ("bytes", "4 miles", "gpusched.batching.bytes cannot be '4 miles'"),
        ("chunk-bytes", None, "gpusched.batching.chunk-bytes cannot be None"),
        ("least", True, "gpusched.batching.least cannot be True"),
    ],
)
def test_a_setting_that_is_no_number_is_named(key: str, value: Any, message: str) -> None:
    with (
        dask.config.set({f"gpusched.batching.{key}": value}),
        pytest.raises(ValueError, match=message),
    ):
        limits()


class TestExplained:
    def test_tasks_are_told_before_and_after(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        found = explain(x * 2 + 1)
        assert found.totals.tasks_after == 64
        assert (found.batches.tasks, found.batches.batches, found.batches.reasons) == (8, 8, ())
        assert "`compute` runs 8 tasks: 8 batches of tiny neighbours." in found.text(width=200)
        assert "8 batches of tiny neighbours" in found.html()

    def test_why_it_was_not_done(self) -> None:
        x = da.from_array(numbers(640), chunks=10)
        unknown = explain(x.map_blocks(lambda z: np.array([float(str(v)) for v in z]), dtype="f8"))
        assert unknown.batches.reasons == (("<lambda> may take any time", 64),)
        with dask.config.set({"gpusched.batching.tasks": 0}):
            (reason,) = explain(x + 1).batches.reasons
        assert reason[0] == "gpusched.batching.tasks is 0"
        with dask.config.set({"gpusched.batching.chunk-bytes": 8}):
            assert dict(explain(x + 1).batches.reasons) == {"chunks that are large enough": 64}
        with dask.config.set({"optimization.fuse.active": False}):
            (reason,) = explain(x + 1).batches.reasons
        assert reason[0] == "optimization.fuse.active is False"
        assert "No tasks are put into batches: 64 tasks: <lambda>" in unknown.text(True, 200)


@pytest.mark.processes
def test_a_batch_is_restored_in_another_process() -> None:
    graph = graph_of(da.ones(640, chunks=10) * 2 + 1)
    batches = (
        node
        for node in graph.values()
        if isinstance(node, Task) and isinstance(node.func, Program) and len(node.args) == 2
    )
    code = (
        "import sys, pickle; task = pickle.loads(sys.stdin.buffer.read());print(task()[7].tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(next(batches)),
        capture_output=True,
        timeout=100,
    )
    assert done.stdout.decode().strip() == str([3.0] * 10), done.stderr.decode()


def test_on_a_cluster() -> None:
    x = da.from_array(numbers(640), chunks=10)
    with (
        LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        enable(),
    ):
        np.testing.assert_allclose((x * 2 + 1).compute(), numbers(640) * 2 + 1)
        np.testing.assert_allclose((x * 2).sum().compute(), (numbers(640) * 2).sum())
        kept = (x - x.mean()).persist()
        np.testing.assert_allclose((kept + 1).compute(), numbers(640) - numbers(640).mean() + 1)
