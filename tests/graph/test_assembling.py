"""Chunks are written to their places in the whole result; the result is dask's in all else."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr
from dask.callbacks import Callback
from dask.core import flatten

import gpusched
from gpusched.graph.optimisation import optimise
from gpusched.graph.passes import assembling, unsplitting
from gpusched.graph.passes.assembling import Assembled, Assembly, Joined
from gpusched.plan.overrides import NONE


@pytest.fixture(autouse=True)
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fuse every chunk, and assemble every result, however small."""
    monkeypatch.setattr(assembling, "LEAST", 1)
    settings = {
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.fusion.minimum-operations": 0,
        "gpusched.fusion.tier": "fused",
        "scheduler": "threads",
    }
    with dask.config.set(settings), gpusched.enable():
        yield


def graph_of(*arrays: Any) -> dict[Any, Any]:
    """Return the graph that computes some arrays, as it runs."""
    expression = FinalizeCompute(collections_to_expr(arrays)).optimize()
    return dict(expression.__dask_graph__())


def results_in(graph: dict[Any, Any]) -> list[Any]:
    return [key for key in graph if type(key) is str and key.startswith("finalize")]


def functions_in(graph: dict[Any, Any]) -> set[type]:
    return {type(getattr(node, "func", None)) for node in graph.values()}


def numbers(shape: tuple[int, ...] = (40, 30), dtype: Any = float) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    return found


def same(array: da.Array) -> np.ndarray:
    """Return an array's value, which is what dask makes of it to the last bit and flag."""
    with gpusched.disable():
        expected = array.compute()
    found: np.ndarray = array.compute()
    assert type(found) is type(expected)
    assert (found.dtype, found.shape, found.strides) == (
        expected.dtype, expected.shape, expected.strides,
    )  # fmt: skip
    assert found.dtype.metadata == expected.dtype.metadata
    assert found.flags == expected.flags
    if found.dtype.hasobject:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes()
    return found


GRIDS = [(10, 30), (7, 30), ((0, 13, 0, 27), (30,)), (40, 7), (13, 11), ((1,) * 40, (29, 1))]


@pytest.mark.parametrize("chunks", GRIDS, ids=str)
def test_a_result_is_as_dask_makes_it(chunks: Any) -> None:
    x = da.from_array(numbers(), chunks=chunks)
    found = same((x - 0.5) ** 2 + x)
    assert found.flags.owndata and found.flags.writeable


@pytest.mark.parametrize("chunks", [(10, 30), (10, 7)], ids=["contiguous", "strided"])
def test_chunks_are_parts_of_the_result(chunks: Any) -> None:
    y = (da.from_array(numbers(), chunks=chunks) - 0.5) ** 2
    graph, keys = graph_of(y), list(flatten(y.__dask_keys__()))
    assert {Assembled, Joined} <= functions_in(graph)
    (result,) = results_in(graph)
    whole, *parts = dask.get(graph, [result, *keys])
    assert all(part.base is whole for part in parts)


@pytest.mark.parametrize("rows", [(6, 6, 6), (6, 7, 5), (18,), (1, 16, 1)], ids=str)
@pytest.mark.parametrize("columns", [7, 9, (2, 7, 9)], ids=str)
@pytest.mark.parametrize("windows", [False, True])
def test_chunks_that_stay_whole_are_put_in_their_places(
    rows: Any, columns: Any, windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsplitting, "threads", lambda: 1)
    x = da.from_array(numbers((18, 18)), chunks=(rows, (9, 9)))
    y = (x - 1).rechunk((rows, columns)) * x.rechunk((rows, columns))
    if windows and rows[-1] > 2:
        view = da.lib.stride_tricks.sliding_window_view
        y = view(y, 3, axis=0, automatic_rechunk=False).max(axis=-1)
    arrays, joined = list[Any](), Assembly.joined

    def kept(self: Assembly, chunks: Any) -> Any:
        arrays.append(joined(self, chunks))
        return arrays[-1]

    monkeypatch.setattr(Assembly, "joined", kept)
    found = same(y)
    assert [each is found for each in arrays] == [True]


@pytest.mark.parametrize(
    "program", [lambda x: x * 2 + 1, lambda x: (x.reshape(60, 5, 6) * 2).sum(axis=1)],
    ids=["elementwise", "accumulated"],
)  # fmt: skip
def test_kernels_write_to_contiguous_places(
    program: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = 0
    put = Assembly.put

    def counted(self: Assembly, number: int, chunk: Any, place: Any) -> Any:
        nonlocal copies
        copies += chunk is not place
        return put(self, number, chunk, place)

    monkeypatch.setattr(Assembly, "put", counted)
    whole = numbers((60, 30))
    x = da.from_array(whole, chunks=(10, 30))
    assert np.array_equal(program(x).compute(scheduler="sync"), program(whole))
    assert copies == 1  # of the first chunk, which says what dtype all have


@pytest.mark.parametrize(
    "dtype",
    ["?", "i2", ">f4", "f2", "c16", "M8[s]", "S3", "U2", object,
     np.dtype([("a", "f4"), ("b", object)]), np.dtype("f8", metadata={"unit": "m"})],
    ids=str,
)  # fmt: skip
def test_dtypes(dtype: Any) -> None:
    values = numbers(dtype="i8").astype(dtype)
    same(da.from_array(values, chunks=(10, 7)).map_blocks(np.copy, dtype=dtype))


def by_place(block: np.ndarray, block_info: Any = None) -> np.ndarray:
    """Return chunks of which one has another dtype than dask has been given."""
    first, second = block_info[0]["chunk-location"]
    return block.astype("f4") if (first, second) == (1, 0) else block


def in_fortran_order(block: np.ndarray) -> np.ndarray:
    return np.asfortranarray(block + 1)


def turned(block: np.ndarray) -> np.ndarray:
    return (block + 1)[::-1]


def masked(block: np.ndarray) -> Any:
    return np.ma.masked_greater(block, 50)


def other_dtype(block: np.ndarray) -> np.ndarray:
    return (block * 1.5).astype("f4")


def shorter(block: np.ndarray) -> np.ndarray:
    return (block + 1)[1:]


def narrow(block: np.ndarray) -> np.ndarray:
    return (block + 1)[:, :1]


def halved(block: np.ndarray, block_info: Any = None) -> np.ndarray:
    """Return chunks of which one has one row, which dask repeats beside others of many."""
    place, grid = block_info[0]["chunk-location"], block_info[0]["num-chunks"]
    return block[:1] if place == (1, grid[1] - 1) else block + 1


OTHERS = [by_place, in_fortran_order, turned, masked, other_dtype, shorter, narrow, halved]


@pytest.mark.parametrize("function", OTHERS)
@pytest.mark.parametrize("chunks", [(10, 30), (10, 15)], ids=["contiguous", "strided"])
def test_chunks_that_are_not_as_announced(function: Callable[..., Any], chunks: Any) -> None:
    x = da.from_array(numbers(), chunks=chunks)
    y = (x * 2).map_blocks(function, dtype=float, meta=np.empty((0, 0)))
    if function is masked:
        with gpusched.disable():
            expected = y.compute()
        found = y.compute()
        assert type(found) is type(expected)
        assert found.tolist() == expected.tolist()
    else:
        same(y)


def test_chunks_of_unknown_size() -> None:
    x = da.from_array(np.arange(40.0), chunks=10)
    same(x[x > 20] * 2)


def test_inputs_are_not_part_of_the_result() -> None:
    values = numbers()
    x = da.from_array(values, chunks=(10, 30))
    found = x.map_blocks(lambda block: block, dtype=float).compute()
    found[:] = -1
    assert np.array_equal(values, numbers())


def test_what_others_compute_with_is_not_part_of_the_result() -> None:
    y = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    part = dask.delayed(lambda block: block)(y.to_delayed()[1, 0])
    first, total, second = dask.compute(y, y.sum(), part)
    assert total == (numbers() * 2 + 1).sum()
    assert not np.shares_memory(first, second)
    first, second = dask.compute(y, y + 1)
    assert not np.shares_memory(first, second)
    assert np.array_equal(first + 1, second)


@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_chunks_of_collections_of_other_kinds_are_not_part_of_the_result(
    optimised: bool, first: bool
) -> None:
    y = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    parts = list(y.to_delayed(optimize_graph=optimised).flat)
    found = dask.compute(*parts, y) if first else dask.compute(y, *parts)[::-1]
    *others, whole = found
    assert not any(np.shares_memory(whole, each) for each in others)
    assert np.array_equal(whole, numbers() * 2 + 1)


def test_some_chunks_in_their_places_and_others_not() -> None:
    x = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    whole, half = dask.compute(x, x[:10] + 1)
    assert np.array_equal(whole, numbers() * 2 + 1)
    assert np.array_equal(half, numbers()[:10] * 2 + 2)


def test_one_chunk_is_copied_as_dask_does() -> None:
    y = da.from_array(numbers(), chunks=-1) + 1
    assert Joined not in functions_in(graph_of(y))
    same(y)


def test_small_chunks_are_left_to_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    y = da.from_array(numbers(), chunks=(10, 30)) + 1
    monkeypatch.setattr(assembling, "LEAST", 10 * 30 * 8 + 1)
    assert Joined not in functions_in(graph_of(y))


def test_a_graph_runs_again() -> None:
    graph = graph_of(da.from_array(numbers(), chunks=(10, 30)) * 2)
    (result,) = results_in(graph)
    first = dask.get(graph, result)
    first[:] = -1
    second = dask.get(graph, result)
    assert np.array_equal(second, numbers() * 2)
    assert (first == -1).all()


def test_a_graph_runs_in_several_threads_at_once() -> None:
    graph = graph_of(da.from_array(numbers(), chunks=(5, 30)) * 2)
    (result,) = results_in(graph)
    wrong, begin = [], threading.Barrier(4)

    def run() -> None:
        begin.wait(20)
        for _ in range(6):
            found = dask.get(graph, result)
            if not np.array_equal(found, numbers() * 2):
                wrong.append(found)
            found[:] = -1  # which no other run may see

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_two_runs(seed: int) -> None:
    """Steps of two runs of one graph, in any order: no result has a number of the other's."""
    random = np.random.default_rng(seed)
    shape, chunks = (4, 3), 2
    assembly = Assembly([(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 3))])
    results: list[Any] = []
    active = [Run(assembly, chunks, random) for _ in range(3)]
    while active:
        run = active[random.integers(len(active))]
        found = run.step()
        if run.stopped:
            active.remove(run)
        if found is not None:
            expected = np.repeat([0.0, 1.0], 2)[:, None] + np.zeros(shape)
            assert np.array_equal(found, expected)
            found[:] = -1  # by whoever has it
            results.append(found)
    assert not any(np.shares_memory(a, b) for a in results for b in results if a is not b)


class Run:
    """One run of a graph of some chunks, a step at a time: each is taken, then put, then joined."""

    def __init__(self, assembly: Assembly, chunks: int, random: np.random.Generator) -> None:
        self._assembly, self._random = assembly, random
        self._waiting = [(number, None, False) for number in range(chunks)]
        self._chunks: list[Any] = [None] * chunks
        self.stopped = False

    def step(self) -> Any:
        """Do one thing, or fail; return the result if there is one."""
        self.stopped = self._random.random() < 0.05
        if self.stopped:
            return None
        if not self._waiting:
            self.stopped = True
            found = self._assembly.joined(self._chunks)
            return np.concatenate(self._chunks) if found is None else found
        number, place, taken = self._waiting.pop(self._random.integers(len(self._waiting)))
        if not taken:
            self._waiting.append((number, self._assembly.take(number), True))
            return None
        chunk = np.full((2, 3), float(number))
        if place is not None and self._random.random() < 0.5:
            place[...] = chunk
            chunk = place
        self._chunks[number] = self._assembly.put(number, chunk, place)
        return None


def test_an_error_half_way() -> None:
    broken = True

    def function(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if broken and block_info[0]["chunk-location"] == (2, 0):
            raise ValueError("half-way")
        return block + 1

    x = da.from_array(numbers(), chunks=(10, 30))
    graph = graph_of(x.map_blocks(function, dtype=float))
    (result,) = results_in(graph)
    with pytest.raises(ValueError, match="half-way"):
        dask.get(graph, result)
    gc.collect()  # of the traceback
    assert graph[result].func._assembly._array is None
    broken = False
    for _ in range(2):
        assert np.array_equal(dask.get(graph, result), numbers() + 1)


def test_floating_point_errors_are_reported() -> None:
    values = numbers()
    values[15, 3] = 0
    y = 1 / da.from_array(values, chunks=(10, 30)) + 1
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = y.compute(scheduler="sync")
    with np.errstate(all="ignore"):
        assert np.array_equal(found, 1 / values + 1)


@pytest.mark.parametrize("length", [1 << 56, 1 << 62], ids=["no memory", "more than NumPy has"])
def test_without_memory_for_the_whole_dask_says_so(length: int) -> None:
    assembly = Assembly([(slice(0, length),)])
    chunk = np.ones(3)
    assert assembly.take(0, chunk.dtype) is None
    assert assembly.put(0, chunk, None) is chunk
    assert assembly.joined([chunk]) is None


def test_elsewhere_a_graph_is_as_without() -> None:
    graph = graph_of(da.from_array(numbers(), chunks=(10, 30)) * 2 + 1)
    sent = pickle.loads(pickle.dumps(graph))
    assert not {Assembled, Joined} & functions_in(sent)
    (result,) = results_in(sent)
    assert np.array_equal(dask.get(sent, result), numbers() * 2 + 1)


def test_callbacks_that_get_results_get_chunks_of_their_own() -> None:
    class Keep(Callback):
        def _posttask(self, key: Any, result: Any, *args: Any) -> None:
            kept[key] = result

    kept: dict[Any, Any] = {}
    y = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    with Keep():
        found = y.compute()
    key, chunk = next((k, v) for k, v in kept.items() if type(k) is tuple)
    assert not np.shares_memory(chunk, found), key


def test_persisted_chunks_are_arrays_of_their_own() -> None:
    y = (da.from_array(numbers(), chunks=(10, 30)) * 2 + 1).persist()
    found = y.compute()
    found[:] = -1
    assert np.array_equal(y.compute(), numbers() * 2 + 1)


def test_a_process_with_a_scheduler_assembles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    y = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    monkeypatch.setattr(assembling, "has_scheduler", lambda: True)
    assert Joined not in functions_in(graph_of(y))


def test_an_optimised_graph_has_the_chunks_that_are_asked_for() -> None:
    y = da.from_array(numbers(), chunks=(10, 30)) * 2 + 1
    graph = optimise(y.dask, y.__dask_keys__(), NONE)
    assert Assembled not in functions_in(graph)
