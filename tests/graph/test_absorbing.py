"""Small tasks cut their own pieces of large chunks: tasks are counted, values compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.graph import disable, enable
from gpusched.graph.passes.chains import absorbed, without_names
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import Table

SETTINGS = {
    "gpusched.batching.chunk-bytes": 200,
    "gpusched.fusion.minimum-elements": 0,
    "gpusched.fusion.strict": True,
}
DAYS, PLACES = 40, 5
"""A day is a chunk of 40 bytes; ten of them are a large chunk."""


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with dask.config.set(SETTINGS), enable():
        gpusched.reset_statistics()
        yield


def field(seed: int = 0) -> Any:
    """Return an array of four large chunks that tasks make."""
    values = np.random.default_rng(seed).uniform(0.5, 2, (DAYS, PLACES))
    return da.from_array(values, chunks=(10, PLACES)).map_blocks(
        lambda block: np.sort(block, axis=1), dtype="f8"
    )


def by_day(seed: int = 1) -> Any:
    """Return an array of a chunk a day."""
    values = np.random.default_rng(seed).uniform(0.5, 2, (DAYS, PLACES))
    return da.from_array(values, chunks=(1, PLACES)).persist(scheduler="sync")


def tasks_of(*arrays: Any) -> list[Any]:
    """Return the tasks that run for these arrays."""
    (merged,) = dask.optimize(da.stack(arrays)) if len(arrays) > 1 else dask.optimize(*arrays)
    return [node for node in dict(merged.dask).values() if isinstance(node, Task)]


def check(*arrays: Any) -> None:
    found = dask.persist(*arrays, scheduler="sync")
    with disable():
        plain = dask.persist(*arrays, scheduler="sync")
    for one, other in zip(found, plain, strict=True):
        # Numbers that nearly cancel keep few digits, and other ones in another order.
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-8)


def check_left_apart(array: Any) -> None:
    """Check that it has the tasks of plain dask, and its values."""
    with disable():
        plain = len(tasks_of(array))
    assert len(tasks_of(array)) == plain
    check(array)


def test_a_task_a_day_cuts_its_piece_and_computes() -> None:
    result = (field() - by_day()) ** 2
    with disable():
        assert len(tasks_of(result)) > 2 * DAYS
    assert len(tasks_of(result)) == DAYS + 4
    check(result)
    assert gpusched.statistics().launches == DAYS


def test_groups_of_days_by_xarray_are_a_task_a_day() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray comes with the extra test")
    month = np.arange(DAYS) % 4
    data = xarray.DataArray(field(), dims=("time", "x"), coords={"month": ("time", month)})
    groups = data.groupby("month")
    with xarray.set_options(use_flox=False):
        anomaly = (groups - groups.mean("time")).data
    assert len(set(anomaly.chunks[0])) == 1 and anomaly.npartitions == DAYS
    with disable():
        plain = len(tasks_of(anomaly))
    assert len(tasks_of(anomaly)) <= plain - 2 * DAYS
    check(anomaly)


@pytest.mark.parametrize("threads", [0, 4, 5])
def test_larger_pieces_are_cut_where_each_thread_of_a_cluster_has_a_chunk(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusched.graph.passes.chains.cluster_threads", lambda: threads)
    with dask.config.set({"gpusched.batching.chunk-bytes": 50}):  # Two days are 80.
        result = field() - by_day().rechunk((2, PLACES)).persist(scheduler="sync")
        if threads > 4:
            return check_left_apart(result)
        assert len(tasks_of(result)) == DAYS // 2 + 4
        check(result)
        halves = field() - by_day().rechunk((8, PLACES)).persist(scheduler="sync")
        check_left_apart(halves)


def test_means_of_groups_are_read_where_they_are() -> None:
    """A task has a day's piece of its chunk, and the row of its group, by an index."""
    means = np.random.default_rng(2).random((4, PLACES))
    rows = da.from_array(means, chunks=(4, PLACES)).persist(scheduler="sync")
    with dask.config.set({"gpusched.batching.chunk-bytes": 50}):
        days = da.take(rows, np.arange(DAYS) % 4, axis=0)
        result = field() - days
        assert max(days.chunks[0]) < 10
        with disable():
            plain = len(tasks_of(result))
        assert len(tasks_of(result)) < plain * 2 // 3
        check(result)
        assert gpusched.statistics().launches == 8  # Four pieces are of two chunks.


def test_pieces_for_two_or_for_the_user_stay() -> None:
    pieces = field().rechunk((1, PLACES))
    result = pieces - by_day()
    check(pieces, result)
    count = len(tasks_of(result))
    assert len(tasks_of(result, pieces * 2)) > 2 * count
    check(result, pieces * 2)


def test_no_chunk_is_kept_for_a_small_part_of_it() -> None:
    edges = field()[::10] - by_day()[::10]
    check_left_apart(edges)


def test_no_task_comes_to_take_two_large_chunks() -> None:
    one, other = (field(seed).rechunk((1, PLACES)) for seed in (0, 1))
    result = one - other
    check_left_apart(result)


def test_tasks_for_certain_workers_stay_apart() -> None:
    made, days = field(), by_day()
    with dask.annotate(workers=["a"]):
        pieces = made.rechunk((1, PLACES))
    result = pieces - days
    check_left_apart(result)


def test_zero_bytes_switch_it_off() -> None:
    result = field() - by_day()
    with dask.config.set({"gpusched.batching.chunk-bytes": 0}):
        assert len(tasks_of(result)) > 2 * DAYS
        check(result)


def test_the_graph_that_is_given_stays_as_it_is() -> None:
    result = field() - by_day()
    with disable():
        (plain,) = dask.optimize(result)
    table = without_names(Table(dict(plain.dask), [], Sizes(result.dask.layers)))
    before = dict(table.tasks)
    found = absorbed(table, 200)
    assert table.tasks == before and len(found.tasks) < len(before)


def test_explain_says_what_runs() -> None:
    found = gpusched.explain((field() - by_day()) ** 2)
    assert found.totals.launches == DAYS


@pytest.mark.slow
@given(st.data())
def test_any_program_gives_what_plain_dask_gives(data: st.DataObject) -> None:
    steps = [
        lambda a, b: a + 2 * b,
        lambda a, b: np.sqrt(abs(a)) * b.rechunk((data.draw(st.sampled_from([1, 3, 8])), PLACES)),
        lambda a, b: a - b.mean(axis=0),
        lambda a, b: a[::-1] - b,
        lambda a, b: a[np.arange(DAYS) // 2] * b,
        lambda a, b: a.rechunk((1, 5)) * 3 - b,
    ]
    arrays: list[Any] = [field(), field(1), by_day()]
    for _ in range(data.draw(st.integers(1, 4))):
        step = data.draw(st.sampled_from(steps))
        arrays.append(step(data.draw(st.sampled_from(arrays)), data.draw(st.sampled_from(arrays))))
    check(*data.draw(st.lists(st.sampled_from(arrays[3:]), min_size=1, max_size=2)))
