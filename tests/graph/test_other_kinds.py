"""Calls whose results have a length that values decide are made once for each chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph import enable
from gpusched.graph.running.inputs import PAYS_ONCE
from gpusched.graph.running.segment import NEW_KIND, OTHER_KINDS, UNUSED
from gpusched.plan import plan
from gpusched.store.statistics import reset_statistics, statistics

from .conftest import SETTINGS

CHUNKS = 12


@pytest.fixture
def misses(no_compiler: None, no_plans: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list]:
    """Fuse every chunk; give what is noted of each plan that did not hold."""
    found: list[str] = []

    class NotedError(plan.OtherKindError):
        def __init__(self, told: str, step: int) -> None:
            found.append(told)
            super().__init__(told, step)

    monkeypatch.setattr(plan, "OtherKindError", NotedError)
    with dask.config.set(SETTINGS | {"scheduler": "sync"}), enable():
        reset_statistics()
        yield found


def data() -> Any:
    return da.from_array(np.random.default_rng(0).normal(size=CHUNKS * 40), chunks=40)


def chosen(x: Any) -> Any:
    """Have a length that values decide, after two calls of kernels and before two."""
    return np.exp(-(x[np.abs(x * 2) > 1] + 1))


def inside(x: Any) -> Any:
    def largest(block: Any) -> Any:
        return np.sqrt(block[block > 0] * 2).max(keepdims=True)

    return x.map_blocks(largest, chunks=(1,), dtype=x.dtype) * 3 + 1


@pytest.mark.parametrize("program", [chosen, inside])
def test_plans_are_in_vain_for_few_chunks(program: Callable, misses: list) -> None:
    found = program(data()).compute()
    assert len(misses) <= sum(range(OTHER_KINDS + 1))
    with gpusched.disable():
        np.testing.assert_allclose(found, program(data()).compute(), rtol=1e-14)


def test_what_is_before_and_after_is_fused(misses: list) -> None:
    chosen(data()).compute()
    noted = len(misses)
    reset_statistics()
    chosen(data()).compute()  # Chunks of these lengths have plans.
    counts = statistics()
    assert len(misses) == noted and counts.recorded.keys() == {
        ("getitem", "the plan before was for one chunk only")
    }
    assert counts.launches == 2 * CHUNKS


def test_one_of_another_kind_in_between_changes_nothing(misses: list) -> None:
    x = data()
    lengths = np.full(CHUNKS, 0.0)
    lengths[5] = 1
    marks = da.from_array(np.repeat(lengths, 40), chunks=40)

    def program(x: Any, marks: Any) -> Any:
        return np.exp(-(x[(np.abs(marks) * 2 < 1) | (x > 0)] + 1))

    program(x, marks).compute()
    reset_statistics()
    found = program(x, marks).compute()
    counts = statistics()
    assert not sum(counts.recorded.values()) and counts.launches >= 2 * CHUNKS
    assert len(misses) == 2 * 2  # to the other plan, and back
    with gpusched.disable():
        np.testing.assert_allclose(found, program(x, marks).compute(), rtol=1e-14)


@pytest.mark.parametrize("pays", [False, True])
def test_functions_are_recorded_for_one_chunk_where_that_pays(pays: bool, misses: list) -> None:
    with dask.config.set({"gpusched.fusion.minimum-elements": 40 // (PAYS_ONCE if pays else 2)}):
        program = inside(data())
        program.compute()
        reset_statistics()
        found = program.compute()
        recorded = statistics().recorded["largest", "the plan before was for one chunk only"]
    assert recorded == (CHUNKS if pays else 0)
    with gpusched.disable():
        np.testing.assert_allclose(found, inside(data()).compute(), rtol=1e-14)


def test_kinds_that_do_not_come_again_are_not_recorded(misses: list) -> None:
    lengths = tuple(range(20, 20 + 3 * UNUSED))
    x = da.from_array(np.random.default_rng(0).normal(size=sum(lengths)), chunks=(lengths,))
    recorded, apart = [], []
    with dask.config.set({"gpusched.fusion.minimum-elements": 10}):
        for _ in range(3):
            reset_statistics()
            np.testing.assert_allclose(np.exp(x * 2 + 1).compute(), np.exp(x.compute() * 2 + 1))
            counts = statistics()
            recorded.append(sum(counts.recorded.values()))
            apart.append(counts.breaks["mul", NEW_KIND])
    assert recorded == [UNUSED, 2 * UNUSED, 0] and apart == [2 * UNUSED, 0, 0]
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        reset_statistics()
        np.sqrt(np.abs(x) + 1).compute()
    assert sum(statistics().recorded.values()) == len(lengths)


def test_a_kind_among_others_that_comes_again_is_recorded_at_once(misses: list) -> None:
    lengths = tuple(n for k in range(2 * UNUSED) for n in (20 + k, 19, 19))
    x = da.from_array(np.random.default_rng(0).normal(size=sum(lengths)), chunks=(lengths,))
    with dask.config.set({"gpusched.fusion.minimum-elements": 10}):
        np.sinh(x * 2 + 1).compute()
    counts = statistics()
    assert sum(counts.recorded.values()) == 2 * UNUSED + 1 and not sum(counts.breaks.values())
