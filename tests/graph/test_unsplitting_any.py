"""Graphs of any calls, with pieces of chunks in them: what they compute stays what it was."""

from __future__ import annotations

import operator
from functools import partial
from itertools import product
from random import Random
from typing import Any

import dask
import numpy as np
import pytest
from dask.array import chunk, reductions
from dask.array.core import concatenate3, concatenate_shaped, finalize
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from toolz import compose  # type: ignore[import-untyped]

from gpusched.adapters.arrays import concatenate2, enforce_dtype, take
from gpusched.adapters.tasks import Alias, DataNode, List, Task, TaskRef
from gpusched.graph.passes import unsplitting
from gpusched.graph.passes.chains import without_links, without_names
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.graph.passes.unsplitting import unsplit


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsplitting, "threads", lambda: 1)
    monkeypatch.setattr(unsplitting._Unsplitting, "_largest", lambda self, family, windows=True: 0)


def values_of(tasks: dict[Any, Any], wanted: list[Any]) -> Any:
    """Return results as arrays, or what their computation raises."""
    try:
        return list(map(np.asarray, dask.get(tasks, wanted)))
    except (ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
        return type(error)


def changed(tasks: dict[Any, Any], wanted: list[Any], sizes: Sizes | None = None) -> bool:
    """Return whether chunks stay whole, having checked that the results are the same."""
    table = without_links(without_names(Table(dict(tasks), wanted, sizes or Sizes({}))))
    ours = unsplit(table).tasks
    expected, found = values_of(tasks, wanted), values_of(ours, wanted)
    if isinstance(expected, type) or isinstance(found, type):
        assert expected is found
    else:
        for one, other in zip(expected, found, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    return ours.keys() != table.tasks.keys()


def piece(layer: str, place: int, rest: tuple[Any, ...] = ()) -> Task:
    """Return a task that cuts one of two pieces off the chunk of a layer."""
    index = (slice(2 * place, 2 * place + 2), *rest)
    return Task((layer, place), operator.getitem, TaskRef(f"chunk-{layer}"), index)


class File:
    """What is not an array yet."""

    def __getitem__(self, index: Any) -> Any:
        assert index != (slice(0, 4),), "all of it"
        return LINE[index]


LINE, PLANE = np.arange(4.0), np.arange(8.0).reshape(4, 2)
MATRIX = PLANE.view(np.matrix)
A, B = "a", "b"


def both(function: Any, layers: tuple[str, ...], *args: Any, **kwargs: Any) -> list[Task]:
    """Return the tasks that call a function with both pieces."""
    return [Task(("z", k), function, *(TaskRef((layer, k)) for layer in layers), *args, **kwargs)
            for k in (0, 1)]  # fmt: skip


def fused(k: int) -> Task:
    """Return a task with two of one layer inside."""
    tasks = [Task(("y", k), operator.mul, TaskRef((A, k)), 2),
             Task(("y", k + 2), operator.mul, TaskRef((B, k)), 2),
             Task(("z", k), operator.sub, TaskRef(("y", k)), TaskRef(("y", k + 2)))]  # fmt: skip
    return Task.fuse(*tasks, key=("z", k))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(
    ("a", "b", "rest", "tasks", "whole"),
    [
        pytest.param(LINE, LINE * 9, (), [fused(0), fused(1)], True, id="two of one layer inside"),
        pytest.param(LINE, PLANE, (), both(operator.add, (A, B)), False, id="axes not cut"),
        pytest.param(LINE, LINE[:3], (), both(operator.add, (A, B)), False, id="a short piece"),
        pytest.param(MATRIX, PLANE, (slice(0, 2),), both(operator.mul, (A, A)), False, id="matrix"),
        pytest.param(File(), LINE, (), both(operator.mul, (A,), 2), False, id="a file"),
        pytest.param(PLANE, LINE, (slice(0, 2),),
                     both(operator.getitem, (A,), (slice(None), slice(np.array(1), None))), False,
                     id="a slice that cannot be hashed"),
    ],
)  # fmt: skip
def test_what_looks_alike(a: Any, b: Any, rest: Any, tasks: list[Task], whole: bool) -> None:
    nodes = [DataNode("chunk-a", a), DataNode("chunk-b", b), *tasks,
             *(piece(A, k, rest) for k in (0, 1)), *(piece(B, k) for k in (0, 1)),
             Task("all", finalize, List(TaskRef(("z", 0)), TaskRef(("z", 1))))]  # fmt: skip
    assert changed({node.key: node for node in nodes}, ["all"]) is whole


def test_one_task_takes_for_two_chunks() -> None:
    indices = [DataNode(f"index-{k}", (1, (np.array([k, 0]),))) for k in range(3)]
    takes = [Task(("t", k), take, TaskRef("chunk-b"), TaskRef(f"index-{k}")) for k in range(3)]
    plus = [Task(("y", k), operator.add, TaskRef((A, k)), TaskRef(("t", k))) for k in (0, 1)]
    times = [Task(("z", k), operator.mul, TaskRef((A, k)), TaskRef(("t", 2 * k))) for k in (0, 1)]
    ends = [Task(f"all-{layer}", finalize, List(TaskRef((layer, 0)), TaskRef((layer, 1))))
            for layer in "yz"]  # fmt: skip
    nodes = [DataNode("chunk-a", LINE), DataNode("chunk-b", LINE * 9), piece(A, 0), piece(A, 1),
             *indices, *takes, *plus, *times, *ends]  # fmt: skip
    assert changed({node.key: node for node in nodes}, ["all-y", "all-z"])


@pytest.mark.parametrize(
    ("x", "sources", "made", "whole"),
    [
        pytest.param(LINE, [LINE, LINE * 9], None, True, id="data"),
        pytest.param(LINE, [LINE, LINE[:3]], operator.neg, True, id="chunks, one of them shorter"),
        pytest.param(LINE.astype("f4"), [LINE, LINE.astype("f4")], None, False, id="dtypes"),
        pytest.param(PLANE, [PLANE, PLANE[:, :1]], None, False, id="data that is broadcast"),
        pytest.param(PLANE, [-PLANE, PLANE], lambda x: x[:, : 1 + (x.sum() > 0)], False,
                     id="chunks that a user's function has made shorter"),
    ],
)  # fmt: skip
def test_tasks_take_of_several_chunks(x: Any, sources: Any, made: Any, whole: bool) -> None:
    others = (slice(0, 2),) * (x.ndim - 1)
    sizes, nodes = Sizes({}), [DataNode("chunk-a", x), *(piece(A, k, others) for k in (0, 1))]
    sizes.add("s", 8, PLANE.shape[: x.ndim])
    for k, positions in enumerate(([2, 0], [-1, 2])):
        key, rest = ("s", k, *(0 for _ in x.shape[1:])), (slice(None),) * (x.ndim - 1)
        data = [DataNode(key, sources[k])]
        if made is not None:
            data = [DataNode(f"data-{k}", sources[k]), Task(key, made, TaskRef(f"data-{k}"))]
        index = DataNode(f"index-{k}", (1, (np.array(positions), *rest)))
        nodes += [*data, index, Task(("t", k), take, TaskRef(key), TaskRef(index.key)),
                  Task(("z", k), operator.add, TaskRef((A, k)), TaskRef(("t", k)))]  # fmt: skip
    rows = [TaskRef(("z", k)) if x.ndim == 1 else List(TaskRef(("z", k))) for k in (0, 1)]
    nodes.append(Task("all", finalize, List(*rows)))
    assert changed({node.key: node for node in nodes}, ["all"], sizes) is whole


# Any graph -------------------------------------------------------------------------------------


def centred(array: Any) -> Any:
    return array - array.mean()


def unary(r: Random, ndim: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a function of one array, and what it is called with besides."""
    axis = r.randrange(-1, ndim + 1)
    axes: Any = r.choice([axis, (axis,), (axis,), (0, axis), ()])
    keepdims = r.choice([True, False])
    reduced = {"axis": axes, "keepdims": keepdims}
    nested = compose(partial(np.max, axis=axes, keepdims=keepdims), partial(concatenate2, axes=[0]))
    return r.choice([
        (operator.mul, (2,), {}), (operator.neg, (), {}), (np.where, (), {}),
        (np.clip, (2, 6), {}), (np.add, (np.ones(()),), {}), (np.add, (np.ones(2),), {}),
        (np.sum, (), reduced), (chunk.max, (), reduced), (np.any, (), reduced), (nested, (), {}),
        (np.sum, (), reduced), (reductions.mean_chunk, (), reduced), (np.flip, (), {}),
        (sliding_window_view, (2, axis), {}), (sliding_window_view, ((2,), (axis,)), {}),
        (operator.getitem, ((slice(None),) * max(axis, 0) + (slice(1, None),),), {}),
        (operator.getitem, ((slice(None), 0),), {}), (np.transpose, (), {}), (centred, (), {}),
        (chunk.astype, (), {"astype_dtype": np.dtype("f4")}),
        (enforce_dtype, (3,), {"enforce_dtype": np.dtype("f4"),
                               "enforce_dtype_function": operator.mul}),
        (chunk.getitem, (slice(0, 1),), {}),
    ])  # fmt: skip


def shorter(array: Any) -> Any:
    """Return less of some chunks than of others, as functions of users may."""
    return array[..., :1] if array.sum() > 0 else array


class Program:
    """Tasks of pieces at random, and what they return."""

    def __init__(self, r: Random) -> None:
        self.r = r
        self.tasks: dict[Any, Any] = {}
        self.values: dict[Any, Any] = {}
        self.places: list[Any] = []
        self.layers: list[str] = []
        self.totals: list[Any] = []
        """Numbers that all pieces of a layer are needed for."""
        self.sizes = Sizes({})
        ndim = r.choice([1, 2, 2, 3])
        self.plain = r.random() < 0.4
        """Whether tasks take as many positions as pieces have, along the axis that is divided."""
        self.axes = sorted(r.sample(range(ndim), 1 if self.plain else r.randint(1, min(2, ndim))))
        lengths = {axis: r.choice([(2, 2), (1, 2), (1, 1), (2, 1, 1)]) for axis in self.axes}
        for name in r.choice([["a"], ["a", "b"], ["a", "b"]]):
            shape = [sum(lengths[k]) if k in lengths else r.choice([1, 2, 2]) for k in range(ndim)]
            self._source(name, shape, lengths)
        for number in range(r.choice([1, 2] if self.plain else [0, 0, 1, 2])):
            self._taken(f"t{number}", shape, lengths)
        for number in range(r.randint(1, 6)):
            self._layer(f"y{number}")
            if r.random() < 0.2:
                self._total(self.layers[-1])
                self._taken(f"u{number}", shape, lengths)

    def _source(self, name: str, shape: list[int], lengths: dict[int, Any]) -> None:
        values = np.array([self.r.randint(-9, 9) for _ in range(int(np.prod(shape)))],
                          self.r.choice(["f8", "f4"]))  # fmt: skip
        self._add(DataNode(f"chunk-{name}", values.reshape(shape)))
        self.places = list(product(*(range(len(lengths[axis])) for axis in self.axes)))
        for place in self.places:
            index = [slice(0, n) for n in shape]
            for axis, k in zip(self.axes, place, strict=True):
                start = sum(lengths[axis][:k])
                index[axis] = slice(start, start + lengths[axis][k])
            self._add(Task((name, *place), operator.getitem, TaskRef(f"chunk-{name}"),
                           tuple(index)))  # fmt: skip
        self.layers.append(name)

    def _taken(self, name: str, shape: list[int], lengths: dict[int, Any]) -> None:
        """Add what tasks take of a chunk, for each place as much as a piece has, or nearly so."""
        r, before = self.r, dict(self.tasks)
        axis = self.axes[0] if self.plain else r.choice([*self.axes, r.randrange(len(shape))])
        long = [r.choice([3, 3, 2]) if k == axis else r.choice([n, 1])
                for k, n in enumerate(shape)]  # fmt: skip
        # One chunk, chunks of one array, which may follow each other, or of two.
        along = axis if r.random() < 0.8 else r.randrange(len(shape))
        chunk_of: list[Any] = r.choice([
            [f"chunk-{name}"], [f"chunk-{name}", f"chunk-{name}b"],
            *[[(f"chunk-{name}", *(k * (a == along) for a in range(len(shape)))) for k in range(3)]]
            * 2])  # fmt: skip
        made = r.choice([None, None, operator.neg, np.add, shorter])
        for each in chunk_of:
            long[axis] = r.choice([2, 3]) if len(chunk_of) == 3 else long[axis]
            kind = "f8" if r.random() < 0.9 else "f4"
            values = np.array([r.randint(-9, 9) for _ in range(int(np.prod(long)))], kind)
            values = values.reshape(long)
            if made is None:
                self._add(DataNode(each, values))
                continue
            self._add(DataNode(f"data-{each}", values.astype("f8")))
            others = [TaskRef(r.choice(self.totals))] if made is np.add and self.totals else []
            others += [] if others or made is not np.add else [2]
            self._add(Task(each, made, TaskRef(f"data-{each}"), *others))
            self.sizes.add(each[0] if type(each) is tuple else each, 8, tuple(long))
        counts = lengths.get(axis, (r.choice([1, 2]),))
        types = r.choice([["i8"], ["i8"], ["u1"], ["u1", "i8"], ["u8", "i8"], ["?"]])
        types = types if not self.plain else r.choice([["i8"], ["u1"]])
        alike, odd = r.random() < 0.3, not self.plain and r.random() < 0.1
        for place in self.places:
            which = place[self.axes.index(axis)] if axis in self.axes else 0
            count = r.choice([1, 2, 3]) if odd else counts[which]
            low = -3 if types == ["i8"] else 0
            positions = np.array([r.randint(low, 2) for _ in range(count)], r.choice(types))
            index: list[Any] = [slice(None)] * r.choice([len(shape), len(shape), axis + 1])
            index[axis] = positions
            other = r.randrange(len(index))
            if other != axis and not self.plain and r.random() < 0.2:
                index[other] = r.choice(
                    [slice(0, 1), slice(0, 2), 0, slice(None, None, -1), np.zeros(count, "i8")]
                )
            source, key = r.choice(chunk_of), (name, *place)
            # The same task for several places, or for those of another layer.
            others = [(layer, *self.places[0]) for layer in ("t0", name)]
            others = [k for k in others if k in self.tasks and count in self.values[k].shape]
            if alike and others:
                self.values[key] = self.values[others[0]]
                self.tasks[key] = Alias(key, others[0])
                continue
            try:
                self._add(DataNode(f"index-{name}-{place}", (1, tuple(index))))
                split = r.random() < 0.3
                made = (f"{name}-all", *place) if split else key
                self._add(Task(made, take, TaskRef(source), TaskRef(f"index-{name}-{place}")))
                if split:
                    piece = [slice(0, n) for n in long]
                    piece[axis] = r.choice([slice(0, count), slice(1, count), slice(None)])
                    self._add(Task(key, r.choice([operator.getitem, chunk.getitem]),
                                   TaskRef(made), tuple(piece)))  # fmt: skip
                    if r.random() < 0.5:
                        self._add(Task.fuse(self.tasks[made], self.tasks[key], key=key))
            except (IndexError, ValueError):
                self.tasks = before
                return
        self.layers.append(name)

    def _add(self, node: Any) -> None:
        given = {key: self.values[key] for key in node.dependencies}
        self.values[node.key] = node(given) if given else node()
        self.tasks[node.key] = node

    def _total(self, layer: str) -> None:
        before = dict(self.tasks)
        try:
            ndim = self.values[layer, *self.places[0]].ndim
            self._add(Task(f"one-{layer}", finalize, self._nested(layer, self.axes, ndim, ())))
            self._add(Task(f"sum-{layer}", np.sum, TaskRef(f"one-{layer}")))
            self.totals.append(f"sum-{layer}")
        except (ValueError, IndexError, TypeError, KeyError, AttributeError):
            self.tasks = before

    def _layer(self, name: str) -> None:
        before = dict(self.tasks)
        first, second = self.r.choice(self.layers), self.r.choice(self.layers)
        kind = self.r.choice(["one", "one", "two", "two", "joined", "mean", "inside"])
        value = self.values[first, *self.places[0]]
        function, args, kwargs = unary(self.r, getattr(value, "ndim", 1))
        shape = self.r.choice([[2, 1], [1, 2], [2, 1, 1], [1, 1, 2], [2], [1, 2, 1]])
        axes = (self.r.choice([0, 1]),)
        other = self.r.choice([operator.add, operator.sub, np.maximum])
        fuse = self.r.random() < 0.3
        for place in self.places:
            x, y = TaskRef((first, *place)), TaskRef((second, *place))
            key = (name, *place)
            if kind == "two":
                node = Task(key, other, x, y)
            elif kind == "joined":
                node = Task(key, concatenate_shaped, List(x, y), shape)
            elif kind == "mean":
                pairs = Task((f"{name}-n", *place), reductions.mean_chunk, x, axis=axes,
                             keepdims=True)  # fmt: skip
                last = Task(key, partial(reductions.mean_agg, axis=axes), List(TaskRef(pairs.key)))
                node = Task.fuse(pairs, last, key=key)
            elif kind == "inside":
                one = Task((f"{name}-n", *place), function, x, *args, **kwargs)
                two = Task((f"{name}-n", "b", *place), function, y, *args, **kwargs)
                last = Task(key, other, TaskRef(one.key), TaskRef(two.key))
                node = Task.fuse(one, two, last, key=key)
            else:
                # dask gives reductions of several chunks lists.
                given = List(x) if type(function).__name__ == "Compose" else x
                node = Task(key, function, given, *args, **kwargs)
                source = self.tasks[x.key]
                if fuse and x.key[0] not in ("a", "b"):
                    node = Task.fuse(source, node, key=key)
            try:
                self._add(node)
            except (ValueError, IndexError, TypeError, KeyError, AttributeError):
                self.tasks = before
                return
        self.layers.append(name)

    def results(self) -> list[Any]:
        """Return the keys of results, having added the tasks that join them."""
        wanted: list[Any] = []
        for layer in self.layers[-3:]:
            values = [self.values[layer, *place] for place in self.places]
            if not all(isinstance(v, np.ndarray) and not v.dtype.hasobject for v in values):
                continue
            ndim, divided = values[0].ndim, len(self.axes)
            if self.r.random() < 0.15 or ndim < divided:
                wanted += [(layer, *self.places[-1])]
                continue
            axes = self.axes
            if axes[-1] >= ndim or self.r.random() < 0.3:
                axes = sorted(self.r.sample(range(ndim), divided))
            join = self.r.choice([finalize, concatenate3])
            node = Task(f"all-{layer}", join, self._nested(layer, axes, ndim, ()))
            try:
                self._add(node)
            except (ValueError, IndexError):
                continue
            wanted.append(node.key)
        return wanted

    def _nested(self, layer: str, axes: list[int], ndim: int, index: tuple[int, ...]) -> Any:
        if len(index) == ndim:
            return TaskRef((layer, *(index[axis] for axis in axes)))
        counts = [1 + max(each) for each in zip(*self.places, strict=True)]
        axis = len(index)
        count = counts[axes.index(axis)] if axis in axes else 1
        return List(*(self._nested(layer, axes, ndim, (*index, k)) for k in range(count)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.exhaustive
@given(st.integers(0, 1 << 32))
def test_any_graph(seed: int) -> None:
    program = Program(Random(seed))
    wanted = program.results()
    if wanted:
        changed(program.tasks, wanted, program.sizes)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_some_graphs_have_chunks_that_stay_whole() -> None:
    found = []
    for seed in range(40):
        program = Program(Random(seed))
        wanted = program.results()
        found.append(bool(wanted) and changed(program.tasks, wanted, program.sizes))
    assert sum(found) > 4
