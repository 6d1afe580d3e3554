"""Kernels that read the parts of joined arrays where those are: bit by bit what NumPy gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.core import concatenate_shaped
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import gpusched
from gpusched.emit.floatingpoint import DIVIDE, take
from gpusched.graph.functions.known import substitute_for
from gpusched.plan import grids, unjoined
from gpusched.plan.grids import is_join
from gpusched.plan.unjoined import UnjoinedLaunch
from gpusched.record.segments import moments, reduced
from tests.record.recording import BACKENDS, Recording, assert_same, record

JOIN: Callable[..., Any] = substitute_for(concatenate_shaped)


@pytest.fixture(autouse=True)
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unjoined, "LEAST_JOINED", 1)
    monkeypatch.setattr(grids, "NARROWEST", 2)
    monkeypatch.setattr(unjoined, "NARROWEST", 2)


def grid(edges: list[list[int]], dtype: str, order: str = "C") -> list[np.ndarray]:
    """Return arrays of these lengths along each axis, as they come in a grid.

    Their elements are in memory in C order, in Fortran order (F), or in each in an order of its
    own, some backwards or with others between them (M).
    """
    random = np.random.default_rng(0)
    return [
        laid_out(random.integers(-9, 9, shape).astype(dtype), order, random)
        for shape in itertools.product(*edges)
    ]


def laid_out(part: np.ndarray, order: str, random: np.random.Generator) -> np.ndarray:
    """Return an array with the elements in memory as `grid` says."""
    if order != "M":
        return np.asarray(part, order=order)
    axes = random.permutation(part.ndim)
    steps = random.choice([1, 1, 2, -1, -3], part.ndim)
    lengths = np.abs(steps) * part.shape
    found = np.zeros(lengths[axes], part.dtype).transpose(np.argsort(axes))
    found = found[tuple(slice(None, None, step) for step in steps)]
    found[...] = part
    return found


def check(function: Callable[..., Any], parts: list[np.ndarray], counts: tuple[int, ...],
          *others: np.ndarray, backend: str = "cpu") -> Recording:  # fmt: skip
    """Compare a function of what is joined with NumPy's result, recorded and from the plan."""
    given_ = (*parts, *others)

    def whole(join: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arrays: function(join(list(arrays[: len(parts)]), counts),
                                        *arrays[len(parts) :])  # fmt: skip

    with np.errstate(all="ignore"):
        expected = whole(concatenate_shaped)(*given_)
        found = record(whole(JOIN), *given_, backend=backend)
        again = found.run(*given_)
    for result in (found.result, again):
        assert_same(result, expected)
    return found


def unjoined_launches(found: Recording) -> list[UnjoinedLaunch]:
    return [step for step in found.plan.steps if isinstance(step, UnjoinedLaunch)]


def joins(found: Recording) -> bool:
    """Return whether the plan joins arrays."""
    return any(is_join(getattr(step, "function", None)) for step in found.plan.steps)


def stencil(u: Any) -> Any:
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return u[1:-1, 1:-1] + around * 2


PADDED = [[1, 40, 1], [1, 30, 1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stencil_reads_the_chunk_where_it_lies(backend: str) -> None:
    found = check(stencil, grid(PADDED, "f4"), (3, 3), backend=backend)
    (launch,) = unjoined_launches(found)
    assert not joins(found)
    assert len(launch.regions) == 5
    assert launch.parts == 9
    inside = [region for region in launch.regions if not region.copies]
    assert [region.index for region in inside] == [(slice(1, 39), slice(1, 29))]
    assert launch.bytes_copied == 4 * (2 * 3 * 32 + 2 * 40 * 3)


def test_results_are_written_to_the_array_that_is_given() -> None:
    parts = grid(PADDED, "f4")
    found = check(lambda u: (u[1:-1, 1:-1] * 2,), parts, (3, 3), backend="python")
    assert unjoined_launches(found)
    into = np.zeros_like(found.result[0])
    (result,), _ = found.plan.run(tuple(parts), into)
    assert result is into
    np.testing.assert_array_equal(into, found.result[0])


lengths = st.lists(st.integers(1, 7), min_size=1, max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[list[tuple[int, int]]], list[list[int]]]:
    """Return the lengths of parts along each axis, views of the whole, and shapes of operands."""
    edges = draw(st.lists(lengths, min_size=1, max_size=3))
    reach = [draw(st.integers(0, min(3, sum(edge) - 1))) for edge in edges]
    views = draw(st.lists(st.tuples(*(st.integers(0, k) for k in reach)), min_size=1, max_size=4))
    shape = [sum(edge) - k for edge, k in zip(edges, reach, strict=True)]
    operand = [draw(st.sampled_from([1, n])) for n in shape][draw(st.integers(0, len(shape))) :]
    return (
        edges,
        [[(k, k + n) for k, n in zip(view, shape, strict=True)] for view in views],
        [operand],
    )


@pytest.mark.parametrize("order", "CFM")
@given(case=cases(), dtype=st.sampled_from(["f4", "f8", "i4", "u1"]))
def test_any_views_of_any_grid(case: Any, dtype: str, order: str) -> None:
    edges, views, (operand,) = case
    parts = grid(edges, dtype, order)

    def function(whole: Any, other: Any) -> Any:
        total = other
        for view in views:
            total = total + whole[tuple(slice(*along) for along in view)]
        return total, total * 2

    other = np.arange(int(np.prod(operand)), dtype=dtype).reshape(operand)
    check(function, parts, tuple(map(len, edges)), other, backend="python")


def test_parts_side_by_side_need_no_copy() -> None:
    found = check(lambda u, v: (u + v) * 2, grid([[5, 7, 4], [6]], "f8"), (3, 1), np.ones(6))
    (launch,) = unjoined_launches(found)
    assert len(launch.regions) == 3
    assert launch.bytes_copied == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda u: (u, stencil(u)),
        lambda u: (stencil(u), np.sort(u, axis=0)),
        lambda u: stencil(u).sum(),
        lambda u: u[::2] + u[::2] * 2,
        lambda u: u[::-1] + u * 2,
        lambda u: u[:1] + u * 2,
        lambda u: np.transpose(u) * 2 + 1,
        lambda u: u[0] * 2 + 1,
    ],
    ids=["result", "sorted", "reduced", "strided", "turned", "broadcast", "transposed", "row"],
)
def test_what_needs_the_whole_gets_it(function: Callable[[Any], Any]) -> None:
    found = check(function, grid(PADDED, "f8"), (3, 3))
    assert joins(found)
    assert not unjoined_launches(found)


def test_several_kernels_read_the_parts() -> None:
    def several(u: Any) -> Any:
        return stencil(u), u[2:, 1:-1] - u[:-2, 1:-1], u[3:] * 2 + 1

    found = check(several, grid(PADDED, "f8"), (3, 3))
    assert len(unjoined_launches(found)) == 2
    assert not joins(found)


def test_results_of_the_parts_are_read_by_others() -> None:
    def twice(u: Any) -> Any:
        return np.sort(stencil(u), axis=0) + 1

    found = check(twice, grid(PADDED, "f8"), (3, 3))
    assert len(unjoined_launches(found)) == 1


SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, 1.0]


@st.composite
def labelled(draw: st.DrawFn) -> tuple[list[list[int]], tuple[int, ...], int, list[int]]:
    """Return the lengths of parts along each axis, the order of the axes, and labels along one."""
    edges = draw(st.lists(lengths, min_size=1, max_size=3))
    axes = tuple(draw(st.permutations(range(len(edges)))))
    axis = draw(st.integers(0, len(edges) - 1))
    count = sum(edges[axes[axis]])
    labels = draw(st.lists(st.integers(-2, 4), min_size=count, max_size=count))
    return edges, axes, axis, labels


@pytest.mark.parametrize("order", "CFM")
@pytest.mark.parametrize("name", ["add", "maximum", "moments", "taken"])
@given(case=labelled(), dtype=st.sampled_from(["f4", "f8", "i1"]), seed=st.integers(0, 9))
def test_reductions_by_label_are_those_of_the_whole(
    name: str, order: str, case: Any, dtype: str, seed: int
) -> None:
    """Bit by bit: elements are joined in the same order, whatever part they are read from."""
    edges, axes, axis, labels = case
    random = np.random.default_rng(seed)
    parts = grid(edges, dtype, order)
    for part in parts:
        if part.dtype.kind == "f":
            part += random.normal(size=part.shape).astype(dtype)
            special = random.random(part.shape) < 0.2
            part[special] = random.choice(SPECIAL, special.sum())

    def by_label(whole: Any, marks: Any) -> Any:
        turned = whole.transpose(axes)
        if name == "moments":
            return tuple(moments(turned, marks, 3, axis))
        if name == "taken":
            means = reduced(turned, marks, 3, "add", axis)
            index = tuple([marks % 3 if k == axis else slice(None) for k in range(len(axes))])
            return means, turned - means[index]
        return reduced(turned, marks, 3, name, axis)

    def joined(*arrays: Any) -> Any:
        return by_label(JOIN(list(arrays[:-1]), tuple(map(len, edges))), arrays[-1])

    marks = np.array(labels)
    with np.errstate(all="ignore"):
        whole = concatenate_shaped(parts, tuple(map(len, edges)))
        expected = record(by_label, whole, marks, backend="python").result
        found = record(joined, *parts, marks, backend="python")
        again = found.run(*parts, marks)
    for result in (found.result, again):
        assert_same(result, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_of_joined_days_read_them_where_they_lie(backend: str) -> None:
    """As xarray resamples: the end of a year and the next one are joined, and time comes last."""
    parts = grid([[1, 40, 1], [6], [5]], "f8")
    labels = np.repeat(np.arange(7), 6)

    def sums(u: Any, marks: Any) -> Any:
        return reduced(u.transpose(1, 2, 0), marks, 7, "add", -1)

    whole = concatenate_shaped(parts, (3, 1, 1))
    expected = np.add.reduceat(whole.transpose(1, 2, 0), np.arange(0, 42, 6), axis=-1)
    found = record(lambda a, b, c, m: sums(JOIN([a, b, c], (3, 1, 1)), m), *parts, labels,
                   backend=backend)  # fmt: skip
    assert_same(found.result, expected)
    assert_same(found.run(*parts, labels[::-1].copy()), expected[..., ::-1])
    (launch,) = unjoined_launches(found)
    assert not joins(found)
    assert launch.parts == 3
    assert launch.bytes_copied == 2 * 8 * 6 * 5
    assert len(launch.regions) == 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("columns", [(1, 7), (1, 1030), (5, 41), (3, 2)])
def test_kernels_are_made_for_how_the_parts_are_in_memory(
    backend: str, columns: tuple[int, int], order: str
) -> None:
    """Bit by bit: of a join whose days are side by side, the columns of the parts may be."""
    random = np.random.default_rng(0)
    days = [random.normal(size=(count, *columns)) for count in (5, 4, 40)]
    parts = [np.ascontiguousarray(day.transpose(1, 2, 0)) for day in days]
    if order == "F":
        parts = [day.transpose(1, 2, 0) for day in days]
    labels = random.integers(-1, 3, 49)

    def sums(u: Any, marks: Any) -> Any:
        return reduced(u, marks, 3, "add", -1)

    def one_by_one(marks: np.ndarray) -> np.ndarray:
        found = np.full((*columns, 3), -0.0)
        for day, label in zip(np.concatenate(days), marks, strict=True):
            if label >= 0:
                found[..., label] += day
        return found

    found = record(lambda *a: sums(JOIN(list(a[:3]), (1, 1, 3)), a[3]), *parts, labels,
                   backend=backend)  # fmt: skip
    assert_same(found.result, one_by_one(labels))
    (launch,) = unjoined_launches(found)
    assert launch.kernel.kernel.inputs[0].access[-1] == ("unit" if order == "F" else "strided")
    other = labels[::-1].copy()
    assert_same(found.run(*parts, other), one_by_one(other))
    wide = np.ascontiguousarray(np.concatenate(parts, axis=-1))
    assert_same(record(sums, wide, labels, backend=backend).result, one_by_one(labels))


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_in_several_orders_share_a_kernel(backend: str) -> None:
    parts = grid([[20, 30, 1, 9], [25]], "f8")
    parts[1] = np.asfortranarray(parts[1])
    parts[3] = parts[3][:, ::-1]
    found = check(stencil, parts, (4, 1), backend=backend)
    (launch,) = unjoined_launches(found)
    assert launch.kernel.kernel.inputs[0].access == ("strided", "strided")


def test_labels_that_are_joined_are_joined_first() -> None:
    labels = [np.array([0, 1, 1]), np.array([2, 0, 2])]

    def sums(a: Any, b: Any, u: Any) -> Any:
        return reduced(u, JOIN([a, b], (2,)), 3, "add", 0)

    values = np.arange(12.0).reshape(6, 2)
    found = record(sums, *labels, values)
    assert_same(found.run(*labels, values), np.array([[8.0, 10], [6, 8], [16, 18]]))
    assert joins(found)


def test_what_is_taken_of_joined_arrays_is_joined_first() -> None:
    parts = grid([[4, 5], [6]], "f8")
    labels = np.array([8, 0, 3, 3, -1])
    found = check(lambda u, k: u[k] * 2 + 1, parts, (2, 1), labels)
    assert joins(found)


def test_days_of_joined_chunks_without_their_means_are_computed_part_by_part() -> None:
    parts = grid([[4, 5], [6]], "f8")
    labels = np.arange(9) % 3
    found = check(lambda u, m, k: u - m[k], parts, (2, 1), np.arange(18.0).reshape(3, 6), labels)
    (launch,) = unjoined_launches(found)
    assert len(launch.regions) == 2


def test_float32_sums_of_parts_are_rounded_once() -> None:
    parts = [np.full((3, 2), 2.0**24, "f4"), np.ones((3, 2), "f4"), np.ones((4, 2), "f4")]
    labels = np.zeros(10, int)
    found = record(lambda a, b, c, m: reduced(JOIN([a, b, c], (3, 1)), m, 1, "add", 0),
                   *parts, labels)  # fmt: skip
    assert len(unjoined_launches(found)) == 1
    expected = np.full((1, 2), 3 * 2.0**24 + 7, "f8").astype("f4")
    assert_same(found.run(*parts, labels), expected)


def test_two_grids_are_read_where_they_lie() -> None:
    parts = grid(PADDED, "f8")

    def both(*arrays: Any) -> Any:
        return stencil(JOIN(list(arrays[:9]), (3, 3))) + stencil(JOIN(list(arrays[9:]), (3, 3)))

    arrays = (*parts, *(part + 1 for part in parts))
    found = record(both, *arrays)
    again = found.run(*arrays)
    wholes = [concatenate_shaped(list(arrays[k : k + 9]), (3, 3)) for k in (0, 9)]
    for result in (found.result, again):
        assert_same(result, stencil(wholes[0]) + stencil(wholes[1]))
    (launch,) = unjoined_launches(found)
    assert launch.parts == 18
    assert not joins(found)


def test_grids_that_are_cut_elsewhere() -> None:
    tall, wide = grid([[15, 25], [30]], "f8"), grid([[40], [1, 28, 1]], "f4")

    def both(*arrays: Any) -> Any:
        return JOIN(list(arrays[:2]), (2, 1)) * 2 - JOIN(list(arrays[2:]), (1, 3))

    arrays = (*tall, *wide)
    found = record(both, *arrays)
    again = found.run(*arrays)
    expected = concatenate_shaped(tall, (2, 1)) * 2 - concatenate_shaped(wide, (1, 3))
    for result in (found.result, again):
        assert_same(result, expected)
    (launch,) = unjoined_launches(found)
    assert [region.index for region in launch.regions if not region.copies] == [
        (slice(0, 15), slice(1, 29)), (slice(15, 40), slice(1, 29))
    ]  # fmt: skip


def test_what_is_joined_twice_is_joined_first() -> None:
    def twice(*arrays: Any) -> Any:
        inner = JOIN(list(arrays[:2]), (2, 1))
        return JOIN([inner[5:], arrays[2]], (2, 1)) * 2 + 1

    arrays = tuple(grid([[10, 10, 10], [20]], "f8"))
    found = record(twice, *arrays)
    again = found.run(*arrays)
    inner = concatenate_shaped(list(arrays[:2]), (2, 1))
    expected = concatenate_shaped([inner[5:], arrays[2]], (2, 1)) * 2 + 1
    for result in (found.result, again):
        assert_same(result, expected)
    assert len(unjoined_launches(found)) == 1


def test_of_two_grids_one_may_be_needed() -> None:
    def sorted_too(*arrays: Any) -> Any:
        first, second = (JOIN(list(arrays[k : k + 2]), (2, 1)) for k in (0, 2))
        return first * 2 + second, np.sort(second, axis=0)

    arrays = tuple(grid([[10, 10], [20]], "f8")) * 2
    found = record(sorted_too, *arrays)
    again = found.run(*arrays)
    whole = concatenate_shaped(list(arrays[:2]), (2, 1))
    for result in (found.result, again):
        assert_same(result[0], whole * 2 + whole)
        assert_same(result[1], np.sort(whole, axis=0))
    (launch,) = unjoined_launches(found)
    assert launch.parts == 2
    assert joins(found)


@pytest.mark.parametrize(
    "change",
    [lambda p: p.astype("f4"), lambda p: p[:, :-1], lambda p: p.T],
    ids=["dtype", "shape", "turned"],
)
def test_parts_of_other_kinds_are_joined(change: Callable[[np.ndarray], np.ndarray]) -> None:
    parts = grid([[4, 4], [5]], "f8")
    parts[1] = change(parts[1])
    try:
        expected = concatenate_shaped(parts, (2, 1)) * 2 + 1
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            record(lambda *a: JOIN(list(a), (2, 1)) * 2 + 1, *parts)
        return
    found = record(lambda *a: JOIN(list(a), (2, 1)) * 2 + 1, *parts)
    assert_same(found.result, expected)
    assert not unjoined_launches(found)


def test_what_would_be_copied_for_the_most_part_is_joined() -> None:
    parts = grid([[20, 30, 20], [5]], "f8")
    assert joins(check(lambda u: u[:-40] + u[40:] + u[20:-20], parts, (3, 1)))
    assert not joins(check(lambda u: u[:-4] + u[4:] + u[2:-2], parts, (3, 1)))


def test_parts_that_are_slices_of_wider_arrays_are_read_too() -> None:
    wide = [np.tile(part, 2)[:, : part.shape[1]] for part in grid([[1, 40, 1], [30]], "f8")]
    assert not wide[1].flags.c_contiguous
    (launch,) = unjoined_launches(check(lambda u: u[:-2] + u[2:] * 2, wide, (3, 1)))
    assert len(launch.regions) == 3


def test_narrow_parts_do_not_divide_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = grid([[40], [16] * 4], "f8")
    (several,) = check(lambda u: u * 2 + 1, parts, (1, 4)).launches
    monkeypatch.setattr(grids, "NARROWEST", 64)
    monkeypatch.setattr(unjoined, "NARROWEST", 64)
    (one,) = check(lambda u: u * 2 + 1, parts, (1, 4)).launches
    assert (len(several.kernel.kernel.loops), len(one.kernel.kernel.loops)) == (2, 1)


def test_small_arrays_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unjoined, "LEAST_JOINED", 1 << 18)
    assert joins(check(stencil, grid(PADDED, "f8"), (3, 3)))


def test_many_narrow_parts_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "NARROWEST", 8)
    monkeypatch.setattr(unjoined, "NARROWEST", 8)
    assert joins(check(lambda u: u * 2 + 1, grid([[4] * 6, [5]], "f8"), (6, 1)))


def test_errors_of_any_part_are_noted() -> None:
    parts = [np.zeros((8, 5)), np.ones((8, 5))]
    function = lambda *a: 1 / JOIN(list(a), (2, 1)) + 1  # noqa: E731
    found = record(lambda *a: function(*a), *(part + 1 for part in parts))
    assert unjoined_launches(found)
    take()
    result = found.run(*parts)
    assert take() == DIVIDE
    np.testing.assert_array_equal(result[:8], np.inf)


# In whole programs ----------------------------------------------------------------------


@pytest.fixture
def switched_on() -> Iterator[None]:
    strict = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    with dask.config.set(strict), gpusched.enable():
        yield


def heat(x: Any, boundary: Any) -> Any:
    for _ in range(2):
        x = x.map_overlap(stencil, depth=1, boundary=boundary, trim=False, chunks=x.chunks,
                          meta=x._meta)  # fmt: skip
    return x


@pytest.mark.parametrize("boundary", ["nearest", "reflect", "periodic", 0])
@pytest.mark.usefixtures("switched_on")
def test_map_overlap_joins_no_chunk(boundary: Any) -> None:
    values = np.random.default_rng(0).integers(-99, 99, (60, 50)).astype("f8")
    x = da.from_array(values, chunks=(20, 25))
    with gpusched.disable():
        expected = heat(x, boundary).compute(scheduler="sync")
    explained = gpusched.explain(heat(x, boundary))
    (last,) = (stage for stage in explained.stages if stage.layer == heat(x, boundary).name)
    assert last.unjoined
    assert "unjoined" in str(explained)
    assert not last.calls
    for scheduler in ("sync", "threads"):
        np.testing.assert_array_equal(heat(x, boundary).compute(scheduler=scheduler), expected)
    assert last.kernels[0].bytes_read == 22 * 27 * 8


@pytest.mark.usefixtures("switched_on")
def test_a_profile_has_each_launch_once() -> None:
    x = da.from_array(np.arange(3000.0).reshape(60, 50), chunks=(20, 25))
    gpusched.reset_statistics()
    with gpusched.profile() as found:
        result = heat(x, "nearest").compute(scheduler="threads")
    launches = {row.name: row.launches for row in found.kernels}
    assert launches == gpusched.statistics().kernels
    assert sum(launches.values()) == 2 * 6
    with gpusched.disable():
        np.testing.assert_array_equal(result, heat(x, "nearest").compute(scheduler="sync"))


NUMBERS = {"factor": 2.0}


@gpusched.fusible
def read_each_time(u: Any) -> Any:
    return u[:-2] * NUMBERS["factor"] + u[2:]


@pytest.mark.usefixtures("switched_on")
def test_what_is_recorded_for_each_chunk_is_told_to_be_joined() -> None:
    x = da.from_array(np.arange(6000.0).reshape(120, 50), chunks=(40, 50))
    y = x.map_overlap(read_each_time, depth={0: 1, 1: 0}, boundary="nearest", trim=False,
                      chunks=x.chunks, meta=x._meta)  # fmt: skip
    last = gpusched.explain(y).stages[-1]
    assert not last.unjoined
    assert ("concatenate_shaped", 3) in last.calls


@pytest.mark.usefixtures("switched_on")
def test_copies_along_wide_joints_count_as_memory() -> None:
    x = da.from_array(np.zeros((3000, 50)), chunks=(1000, 50)).persist(scheduler="sync")

    def spread(u: Any) -> Any:
        return u[:-100] + u[100:] * 2 + u[50:-50]

    y = x.map_overlap(spread, depth={0: 50, 1: 0}, boundary="periodic", trim=False,
                      chunks=x.chunks, meta=x._meta)  # fmt: skip
    last = gpusched.explain(y).stages[-1]
    assert last.unjoined
    chunk, edge, copy = 1000 * 50 * 8, 50 * 50 * 8, 150 * 50 * 8
    assert last.peak == 2 * chunk + 2 * edge + copy


# Windows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_windows_are_reduced_where_the_chunk_is(keepdims: bool, backend: str) -> None:
    parts = grid([[60, 9], [7]], "f8")

    def function(whole: Any) -> Any:
        return sliding_window_view(whole, 10, 0).max(axis=-1, keepdims=keepdims)

    found = check(function, parts, (2, 1), backend=backend)
    (launch,) = unjoined_launches(found)
    assert not joins(found)
    assert [bool(region.copies) for region in launch.regions] == [False, True]
    assert launch.bytes_copied == 8 * 7 * (9 + 9)


@st.composite
def windowed(draw: st.DrawFn) -> tuple[list[list[int]], int, int, int, bool]:
    """Return the lengths of parts, the axis and length of windows, where those end, and if kept."""
    edges = draw(st.lists(lengths, min_size=2, max_size=3))
    axis = draw(st.integers(0, len(edges) - 1))
    edges[axis] = draw(st.lists(st.integers(1, 17), min_size=1, max_size=3))
    length = draw(st.integers(1, min(6, sum(edges[axis]))))
    return edges, axis, length, draw(st.integers(0, 3)), draw(st.booleans())


@pytest.mark.parametrize("order", "CFM")
@given(case=windowed(), dtype=st.sampled_from(["f4", "f8", "i4", "u1"]))
def test_windows_of_any_grid(case: Any, dtype: str, order: str) -> None:
    edges, axis, length, before, keepdims = case
    parts = grid(edges, dtype, order)

    def function(whole: Any, other: Any) -> Any:
        windows = sliding_window_view(whole, length, axis)
        part = windows[tuple(slice(min(before, n - 1), None) for n in windows.shape[:-1])]
        weighted = part * other
        return (part.max(axis=-1, keepdims=keepdims), part.sum(axis=-1, keepdims=keepdims),
                weighted.min(axis=-1, keepdims=keepdims))  # fmt: skip

    check(function, parts, tuple(map(len, edges)), np.array([3], dtype), backend="python")
