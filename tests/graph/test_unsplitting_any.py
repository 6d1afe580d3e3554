"""Graphs of any calls, with pieces of chunks in them: what they compute stays what it was."""

from __future__ import annotations

import operator
from functools import partial
from itertools import permutations, product
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

from gpusched.adapters.arrays import (
    broadcast_trick,
    concatenate2,
    concatenate_arrays,
    enforce_dtype,
    take,
)
from gpusched.adapters.tasks import Alias, DataNode, List, Task, TaskRef
from gpusched.graph.functions.independence import Divided
from gpusched.graph.passes import alike, unsplitting
from gpusched.graph.passes.chains import without_links, without_names
from gpusched.graph.passes.shownshapes import divisions
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table
from gpusched.graph.passes.taking import taken_by
from gpusched.graph.passes.unsplitting import unsplit


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsplitting, "threads", lambda: 1)
    monkeypatch.setattr(alike.Families, "largest", lambda self, family, windows=True: 0)


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


SHOWN = partial(broadcast_trick(np.ones_like), dtype=np.dtype("f8"))
SUBARRAYS = partial(broadcast_trick(np.full_like), fill_value=[1, 2], dtype=np.dtype(("f8", 2)))
SOMEBODY_S = partial(broadcast_trick(lambda meta, shape: np.ones(shape)))


def with_shown(shapes: Any, made: Any = SHOWN, last: Any = operator.add) -> list[Task]:
    """Return the tasks that compute with both pieces and chunks of one element of some shapes."""
    found = []
    for k, shape in enumerate(shapes):
        ones = Task(("ones", k), made, DataNode(None, shape))
        both = Task(("both", k), last, TaskRef((A, k)), TaskRef(ones.key))
        end = Task(("z", k), operator.add, TaskRef(both.key), TaskRef((B, k)))
        found.append(Task.fuse(ones, both, end, key=end.key))
    return found


@pytest.mark.parametrize(
    ("ends", "tasks", "whole"),
    [
        pytest.param((2, 4), with_shown([(2,), (2,)]), True, id="as long as the pieces"),
        pytest.param((3, 4), with_shown([(3,), (1,)]), True, id="as long as pieces of two lengths"),
        pytest.param((2, 4), with_shown([(1,), (1,)]), True, id="of one element alone"),
        pytest.param((1, 2), with_shown([(1,), (1,)]), True, id="of one element, as the pieces"),
        pytest.param((2, 4), with_shown([(1,), (2,)]), False, id="of other lengths each"),
        pytest.param((3, 4), with_shown([(3,), (1,)], SOMEBODY_S), False, id="a user's function"),
        pytest.param((2, 4), with_shown([(2,), (2,)], SUBARRAYS), False, id="two elements"),
        pytest.param((2, 4), with_shown([(2, 2), (2, 2)]), False, id="more axes"),
        pytest.param((2, 4), with_shown([(2,), (2, 2)]), False, id="more axes once"),
        pytest.param((2, 4), with_shown([(2,), (2,)], last=np.dot), False, id="products of pieces"),
    ],
)  # fmt: skip
def test_chunks_of_one_element_beside_pieces(ends: Any, tasks: list[Task], whole: bool) -> None:
    cut = [Task((layer, k), operator.getitem, TaskRef("chunk-a"), (slice(start, stop),))
           for k, (start, stop) in enumerate(zip((0, ends[0]), ends, strict=True))
           for layer in (A, B)]  # fmt: skip
    nodes = [DataNode("chunk-a", LINE), *cut, *tasks,
             Task("all", finalize, List(TaskRef(("z", 0)), TaskRef(("z", 1))))]  # fmt: skip
    assert changed({node.key: node for node in nodes}, ["all"]) is whole


@pytest.mark.parametrize(
    ("shapes", "lengths", "found"),
    [
        ([(2, 4), (1, 4)], [(2,), (1,)], [Divided(2, (0,))]),
        ([(2, 2), (2, 2)], [(2,), (2,)], [Divided(2, (0,)), Divided(2, (1,)), (2, 2)]),
        ([(2, 4), (1, 5)], [(2,), (1,)], []),
        ([(2, 4), (1, 4)], [(1,), (2,)], []),
        ([(2, 1), (1, 2)], [(2,), (1,)], []),
        ([(1, 4), (1, 4)], [(2,), (1,)], [(1, 4)]),
        ([(2, 3), (2, 1)], [(2, 3), (2, 1)], [Divided(2, (0, 1))]),
        ([(3, 2), (1, 2)], [(2, 3), (2, 1)], []),
    ],
)
def test_how_chunks_of_one_element_may_be_pieces(shapes: Any, lengths: Any, found: Any) -> None:
    assert list(divisions([{"s": each} for each in shapes], lengths)) == [{"s": f} for f in found]


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


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(3, None)])
def test_what_is_taken_of_two_chunks_is_in_dask_s_order(order: Any, cut: slice) -> None:
    chunks = {("s", 0): LINE, ("s", 1): LINE * 9}
    nodes = [DataNode(("i", k), (1, (np.array(each),))) for k, each in enumerate(([2, 0], [1, 3]))]
    nodes += [Task(("t", k), take, TaskRef(("s", k)), TaskRef(("i", k))) for k in (0, 1)]
    nodes += [DataNode("sorter", (1, np.array(order)))]
    both = List(TaskRef(("t", 0)), TaskRef(("t", 1)))
    nodes += [Task("both", concatenate_arrays, both, TaskRef("sorter"), 0)]
    nodes += [Task("cut", operator.getitem, TaskRef("both"), (cut,))]
    tasks = {node.key: node for node in nodes}
    taken = taken_by(tasks["cut"], tasks, dict.fromkeys(chunks, (4,)).get, {})
    assert taken is not None
    found = np.concatenate([chunks[each.source][each.positions] for each in taken])
    data = {key: DataNode(key, value) for key, value in chunks.items()}
    np.testing.assert_array_equal(found, dask.get(tasks | data, "cut"))


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


def shown_of(r: Random) -> Any:
    """Return what makes tasks of pieces with chunks of one element in them, as long or nearly so.

    A tuple that is equal to a shape may mean something else: axes, or the length of windows.
    """
    makers = [maker_of(r) for _ in range(r.choice([1, 1, 2]))]
    literal = r.choice([None, None, None, "axis", "window"])
    ends = [r.choice([operator.add, np.maximum, operator.mul]) for _ in makers]
    take, swapped = r.random() < 0.3, r.random() < 0.3

    def task(key: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Task:
        nodes, given = [], x
        for number, (maker, end) in enumerate(zip(makers, ends, strict=True)):
            name = f"{key[0]}-{number}"
            function, lengths, after, args, kwargs = maker(shape)
            nodes += [Task((f"{name}-o", *key[1:]), function, lengths)]
            if after is not None:
                made = TaskRef(nodes[-1].key)
                nodes += [Task((f"{name}-a", *key[1:]), after, made, *args, **kwargs)]
            operands = [given, TaskRef(nodes[-1].key)][:: -1 if swapped else 1]
            nodes += [Task((f"{name}-e", *key[1:]), end, *operands)]
            given = TaskRef(nodes[-1].key)
        if literal == "axis":
            nodes += [Task((f"{key[0]}-s", *key[1:]), np.sum, given, axis=shape[:1], keepdims=True)]
        elif literal == "window":
            nodes += [Task((f"{key[0]}-w", *key[1:]), sliding_window_view, given, shape[:1], (0,))]
        elif take:
            nodes += [Task((f"{key[0]}-y", *key[1:]), operator.sub, given, y)]
        return Task.fuse(*nodes, key=key)

    return task


def maker_of(r: Random) -> Any:
    """Return what gives, for the shape of a piece, a call of one element, and what follows it."""
    function, options = r.choice([
        (np.zeros_like, {}), (np.ones_like, {"order": "C"}), (np.full_like, {"fill_value": 3}),
        (np.full_like, {"fill_value": np.float32(0.5), "meta": np.empty((0, 0), "f4")}),
        (np.full_like, {"fill_value": [1, 2], "dtype": np.dtype(("f8", 2))}),
        (lambda meta, shape, dtype: np.zeros(shape, dtype), {}),
    ])  # fmt: skip
    function = partial(broadcast_trick(function), **{"dtype": np.dtype("f8"), **options})
    kind = r.choice(["own"] * 6 + ["swapped", "one", "more", "less", "fixed"])
    after, args, kwargs = r.choice([(None, (), {})] * 3 + [unary(r, 2)])
    place, seed, node = r.random(), r.randrange(3), r.random() < 0.5

    def maker(shape: tuple[int, ...]) -> Any:
        axis = int(place * len(shape))
        lengths = {
            "own": shape, "swapped": shape[::-1], "more": (2, *shape), "less": shape[1:],
            "one": (*shape[:axis], 1, *shape[axis + 1 :]), "fixed": (seed,) * len(shape),
        }[kind]  # fmt: skip
        return function, DataNode(None, lengths) if node else lengths, after, args, kwargs

    return maker


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
        lengths = {
            axis: r.choice([(2, 2), (1, 2), (1, 1), (2, 1, 1), (3, 1)]) for axis in self.axes
        }
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
        ordered = r.random() < 0.4
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
                split = r.random() < 0.3
                made = (f"{name}-all", *place) if split else key
                if ordered and count > 1:
                    self._in_order(made, [r.choice(chunk_of) for _ in range(2)], index, axis)
                else:
                    self._add(DataNode(f"index-{name}-{place}", (1, tuple(index))))
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

    def _in_order(self, made: Any, sources: list[Any], index: list[Any], axis: int) -> None:
        """Add a task that takes of two chunks, in some order, as dask's `take` does."""
        positions, parts = index[axis], []
        middle = self.r.randint(1, len(positions) - 1)
        for k, (source, own) in enumerate(
            zip(sources, (positions[:middle], positions[middle:]), strict=True)
        ):
            data = DataNode((f"index-{k}", made), (1, (*index[:axis], own, *index[axis + 1 :])))
            part = Task((f"part-{k}", made), take, TaskRef(source), TaskRef(data.key))
            parts.append(TaskRef(part.key))
            self._add(data)
            self._add(part)
        sorter = self.r.sample(range(len(positions)), len(positions))
        sorter = sorter if self.r.random() < 0.8 else [0] * len(positions)
        self._add(DataNode(("sorter", made), (1, np.array(sorter, "u1"))))
        other = axis if self.r.random() < 0.9 else 0
        self._add(Task(made, concatenate_arrays, List(*parts), TaskRef(("sorter", made)), other))

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
        kind = self.r.choice(["one", "one", "two", "two", "joined", "mean", "inside", "shown"])
        shown = shown_of(self.r)
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
            elif kind == "shown":
                node = shown(key, x, y, getattr(self.values[x.key], "shape", (2,)))
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
