"""Cheap results that later stages need are computed again: bytes are counted, values compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph import disable, enable
from gpusched.graph.functions.reductionsteps import reduces
from gpusched.graph.passes import merging, recomputing
from gpusched.graph.passes.recomputing import is_light, recomputed
from tests.graph.passes import assert_same_results, table_of

ROWS, COLUMNS, CHUNKS = 400, 5, 4
LEAST = 1000
"""Bytes of a large chunk: results of reductions have less."""


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(merging, "threads", lambda: 2)
    configured = {
        "gpusched.fusion.merge-bytes": LEAST,
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.fusion.strict": True,
        "gpusched.batching.tasks": 0,
    }
    with dask.config.set(configured), enable():
        gpusched.reset_statistics()
        yield


def numbers(seed: int = 0) -> Any:
    """Return an array of four chunks that are in memory."""
    values = np.random.default_rng(seed).uniform(0.5, 2, (ROWS, COLUMNS))
    return da.from_array(values, chunks=(ROWS // CHUNKS, COLUMNS)).persist(scheduler="sync")


def run(*arrays: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in dask.persist(*arrays, scheduler="sync")]


def check(*arrays: Any) -> gpusched.Statistics:
    """Compare what some arrays are with plain dask's; return what was counted."""
    gpusched.reset_statistics()
    found = run(*arrays)
    counted = gpusched.statistics()
    with disable():
        for value, plain in zip(found, run(*arrays), strict=True):
            np.testing.assert_allclose(value, plain, rtol=1e-12, strict=True)
    return counted


def noted(counted: gpusched.Statistics) -> set[GraphBreak]:
    return {reason.kind for what, reason in counted.apart if what == "recompute"}


def test_what_a_reduction_and_its_users_need_is_never_written() -> None:
    x = numbers()
    shared = x * 2 - 1
    counted = check(shared - shared.mean(axis=0))
    assert x.nbytes <= counted.bytes_written < 1.1 * x.nbytes
    assert counted.bytes_read < 2.1 * x.nbytes
    assert not noted(counted)


def test_a_correlation_of_fields_with_gaps_writes_none() -> None:
    x, y = numbers(), numbers(1)
    there = ~np.isnan(x) & ~np.isnan(y)
    one, other = da.where(there, x, np.nan), da.where(there, y, np.nan)
    covariance = ((one - da.nanmean(one, axis=0)) * (other - da.nanmean(other, axis=0))).mean(
        axis=0
    )
    counted = check(covariance / da.nanstd(one, axis=0) / da.nanstd(other, axis=0))
    assert counted.bytes_written < 0.3 * x.nbytes


def test_several_tasks_of_a_stage_compute_it_once() -> None:
    x = numbers()
    shared = x * 2 - 1
    found = gpusched.explain([shared.sum(axis=0), shared.max(axis=0), shared.min(axis=0)])
    (kernel,) = [each for each in found.kernels if "multiply" in each.name]
    assert kernel.name.count("multiply") == 1
    assert check(shared.sum(axis=0), shared.max(axis=0)).bytes_read < 1.1 * x.nbytes


@pytest.mark.parametrize("function", [np.exp, np.sin, lambda x: x % 3, lambda x: x // 3])
def test_what_takes_long_is_computed_once(function: Callable[[Any], Any]) -> None:
    shared = function(numbers())
    table = table_of(shared - shared.mean(axis=0))
    assert recomputed(table, LEAST) is table
    check(shared - shared.mean(axis=0))


def test_results_stay_results() -> None:
    x = numbers()
    shared = x * 2 - 1
    table = table_of(shared, shared - shared.mean(axis=0))
    assert recomputed(table, LEAST) is table
    check(shared, shared - shared.mean(axis=0))


def test_what_is_made_of_much_is_kept() -> None:
    arrays = [numbers(seed) for seed in range(7)]
    shared = sum(arrays[1:], start=arrays[0])
    spread = shared - shared.mean(axis=0)
    counted = check(spread / abs(spread).max(axis=0) - shared.max(axis=0))
    assert GraphBreak.NO_GAIN in noted(counted)


@pytest.mark.parametrize(("times", "again"), [(5, True), (20, False)])
def test_long_chains_are_computed_once(times: int, again: bool) -> None:
    shared = numbers()
    for _ in range(times):
        shared = shared * 2 - 1
    table = table_of(shared - shared.mean(axis=0))
    assert (recomputed(table, LEAST) is not table) is again
    check(shared - shared.mean(axis=0))


def test_no_larger_chunk_is_kept_instead() -> None:
    """A sorted chunk of float64 would stay as long as a float32 that is made of it."""
    x = numbers().map_blocks(lambda block: np.sort(block, axis=1), dtype="f8")
    shared = (x > 1).astype("f4")
    counted = check(shared - shared.mean(axis=0) + x.sum(axis=0))
    assert GraphBreak.KEPT in noted(counted)


def test_data_of_a_graph_are_kept_by_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks of them would be kept by one where the sum of these was."""
    x = da.from_array(np.ones((ROWS, COLUMNS)), chunks=(ROWS // CHUNKS, COLUMNS))
    shared = x + da.from_array(np.arange(COLUMNS * ROWS).reshape(x.shape), chunks=x.chunks)
    program = shared - shared.mean(axis=0)
    assert not noted(check(program))
    monkeypatch.setattr(recomputing, "cluster_threads", lambda: 2)
    assert noted(check(program)) == {GraphBreak.KEPT}


def test_functions_that_are_not_recorded_get_it_as_it_is() -> None:
    x = numbers()
    shared = x * 2 - 1
    sort = shared.map_blocks(lambda block: np.sort(block, axis=0), dtype="f8")
    counted = check(sort + shared.mean(axis=0))
    assert GraphBreak.NO_KERNEL in noted(counted)


def test_tasks_that_are_to_run_in_a_way_of_their_own_stay_alone() -> None:
    x = numbers()
    with dask.annotate(resources={"GPU": 1}):
        shared = x * 2 - 1
    assert GraphBreak.ANNOTATED in noted(check(shared - shared.mean(axis=0)))


@pytest.mark.parametrize("least", [0, 10**6])
def test_small_chunks_are_left_alone(least: int) -> None:
    x = numbers()
    shared = x * 2 - 1
    table = table_of(shared - shared.mean(axis=0))
    assert recomputed(table, least) is table
    assert sum(times for (what, _), times in table.apart.items() if what == "recompute") == 1


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + 2 * b,
    lambda a, b: da.where(a > 1, b, np.nan),
    lambda a, b: a - da.nanmean(b, axis=0),
    lambda a, b: (a * b).max(axis=1, keepdims=True) - a,
    lambda a, b: da.nanstd(a, axis=0) + b,
    lambda a, b: np.exp(-abs(a)) - b,
    lambda a, b: (a < b).astype("f8") * a,
    lambda a, b: a.map_blocks(lambda block: np.sort(block, axis=1), dtype="f8") + b,
    lambda a, b: a[::-1] - b,
    lambda a, b: a.clip(0.6, None) * b.sum(axis=1)[:, None],
    lambda a, b: a.astype("f4") + b.astype("f4"),
]


@st.composite
def programs(draw: st.DrawFn) -> list[Any]:
    """Return some arrays that are made of each other in any way."""
    arrays = [numbers(), numbers(1)]
    for _ in range(draw(st.integers(2, 6))):
        one, other = draw(st.lists(st.sampled_from(arrays), min_size=2, max_size=2))
        arrays.append(draw(st.sampled_from(STEPS))(one, other))
    return draw(st.lists(st.sampled_from(arrays[2:]), min_size=1, max_size=3, unique_by=id))


@given(programs())
def test_any_tasks_return_what_they_returned(arrays: list[Any]) -> None:
    table = table_of(*arrays)
    assert_same_results(table, recomputed(table, LEAST))


@settings(max_examples=25)
@given(programs())
def test_any_program_gives_what_plain_dask_gives(arrays: list[Any]) -> None:
    found = run(*arrays)
    with disable():
        for value, plain in zip(found, run(*arrays), strict=True):
            bound = 1e-5 if plain.dtype == "f4" else 1e-9
            np.testing.assert_allclose(value, plain, rtol=bound, atol=bound, strict=True)


@given(programs())
def test_what_is_kept_is_noted(arrays: list[Any]) -> None:
    """Whatever is cheap, large and needed after a stage is computed again, or noted."""
    table = table_of(*arrays)
    found = recomputed(table, LEAST)
    left = [
        key
        for key, node in found.tasks.items()
        if type(node).__name__ == "Task" and found.users[key] > 1 and key not in found.wanted
        and (found.nbytes(key) or 0) >= LEAST and is_light(node)
        and any(reduces(each) for each in found.tasks.values() if key in each.dependencies)
    ]  # fmt: skip
    assert sum(times for (what, _), times in found.apart.items() if what == "recompute") >= len(
        left
    )
