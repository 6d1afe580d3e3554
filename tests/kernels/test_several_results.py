"""Kernels with several results fuse with the calls around them as those with one do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.plan.shortage import in_pieces
from gpusched.record.recorded import one_of
from gpusched.record.steps import ProgramStep

SETTINGS = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
CHUNKS = 4


@gpusched.kernel
def both(x, y):
    """Return what NumPy computes exactly so."""
    return x + y, x - y, x > y


@gpusched.kernel.stencil(boundary="nearest")
def ends(a):
    return a[-1], a[1]


def numpy_both(x: Any, y: Any) -> Any:
    return x + y, x - y, x > y


def arrays(count: int = 2, chunks: int = 10) -> list[Any]:
    """Return arrays whose chunks differ, so that no plan may keep the values of one."""
    values = np.random.default_rng(0).normal(size=(count, CHUNKS * chunks))
    return [da.from_array(v, chunks=chunks).persist(scheduler="sync") for v in values]


def computed(*results: Any) -> tuple[tuple[Any, ...], Any]:
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set(SETTINGS):
        found = dask.compute(*results, scheduler="sync")
    return found, gpusched.statistics()


def runs(counts: Any) -> int:
    """Return how many times the kernel has run over a chunk."""
    return sum(number for name, number in counts.kernels.items() if "both" in name)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "product": lambda a, b, c: (a + 1) * b,
    "one result": lambda a, b, c: np.exp(b) + 1,
    "choice": lambda a, b, c: np.where(c, a, b) * 2,
    "twice": lambda a, b, c: np.minimum(a, 1) + np.maximum(a * b, b),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_array_of_all_results_is_one_kernel_a_chunk(name: str) -> None:
    x, y = arrays()
    (found,), counts = computed(PROGRAMS[name](*both(x * 2, y)))
    assert (counts.tasks, counts.fused_tasks, counts.launches) == (CHUNKS,) * 3
    assert len(counts.kernels) == 1
    assert counts.bytes_written == x.nbytes
    assert not counts.breaks
    expected = PROGRAMS[name](*numpy_both(x.compute() * 2, y.compute()))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_reduction_of_all_results_is_one_kernel_a_chunk() -> None:
    x, y = arrays()
    a, b, _ = both(x, y)
    (found,), counts = computed(((a + 1) * b).sum())
    assert runs(counts) == counts.launches == CHUNKS
    assert counts.bytes_written <= (CHUNKS + 1) * 8
    np.testing.assert_allclose(found, ((x + y + 1) * (x - y)).compute().sum(), rtol=1e-12)


def test_what_follows_each_result_fuses_after_one_run_of_the_kernel() -> None:
    x, y = arrays()
    a, b, _ = both(x, y)
    (first, second), counts = computed((a + y) * 2, np.sqrt(abs(b)) + x)
    assert runs(counts) == CHUNKS
    assert counts.launches == 3 * CHUNKS
    assert len(counts.kernels) == 3
    assert not counts.breaks
    x, y = x.compute(), y.compute()
    np.testing.assert_array_equal(first, (x + y + y) * 2)
    np.testing.assert_array_equal(second, np.sqrt(abs(x - y)) + x)


def test_results_that_are_wanted_as_they_are_come_of_one_run() -> None:
    x, y = arrays()
    a, b, _ = both(x, y)
    found, counts = computed(a, b, a * b + 1)
    assert runs(counts) == CHUNKS
    expected = x + y, x - y, (x + y) * (x - y) + 1
    for one, wanted in zip(found, dask.compute(*expected), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_inside_a_function_of_the_users() -> None:
    x, y = arrays()

    def joined(p: Any, q: Any) -> Any:
        a, b, _ = both(p, q)
        return (a + 1) * b

    (found,), counts = computed(da.map_blocks(joined, x, y, dtype="f8"))
    assert (counts.launches, dict(counts.breaks)) == (CHUNKS, {})
    x, y = x.compute(), y.compute()
    np.testing.assert_array_equal(found, (x + y + 1) * (x - y))


def test_stencils() -> None:
    (x,) = arrays(1)
    left, right = ends(x)
    (found,), counts = computed((right - left) * 2)
    assert counts.launches == CHUNKS
    padded = np.pad(x.compute(), 1, "edge")
    np.testing.assert_array_equal(found, (padded[2:] - padded[:-2]) * 2)


def test_a_function_that_returns_a_tuple_of_arrays() -> None:
    """What is not a kernel gives a task of its own; its arrays are not constants of a plan."""
    x, y = arrays()

    # Not recorded, since it changes its argument.
    def sorted_both(p: Any) -> Any:
        p = p.copy()
        p.sort()
        return p, -p

    whole = x.map_blocks(sorted_both, dtype=object, meta=np.empty(0, object))
    first = whole.map_blocks(operator.getitem, 0, dtype="f8", meta=np.empty(0))
    (found,), _ = computed((first + y) * 2)
    expected = np.sort(x.compute().reshape(CHUNKS, -1)).ravel()
    np.testing.assert_array_equal(found, (expected + y.compute()) * 2)


# Any program -----------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "subtract", "multiply", "maximum", "where"]),
              st.integers(0, 9), st.integers(0, 9)),
    min_size=1, max_size=6,
)  # fmt: skip


def pool(steps: Any, x: Any, y: Any, kernel: Callable[..., Any]) -> list[Any]:
    """Return what the steps make of two arrays and the results of a kernel on them."""
    a, b, c = kernel(x, y)
    found = [x, a, b]
    for name, i, j in steps:
        left, right = found[i % len(found)], found[j % len(found)]
        if name == "where":
            where = da.where if isinstance(c, da.Array) else np.where
            found.append(where(c, left, right))
        else:
            found.append(getattr(np, name)(left, right))
    return found[1:]


@given(STEPS, st.lists(st.integers(0, 8), min_size=1, max_size=3), st.integers(1, 5))
def test_any_program_gives_numpys_values_and_runs_the_kernel_once(
    steps: Any, wanted: list[int], parts: int
) -> None:
    x, y = arrays()
    lazy = pool(steps, x, y, both)
    exact = pool(steps, x.compute(), y.compute(), numpy_both)
    numbers = [k % len(lazy) for k in wanted]
    with in_pieces(parts):
        found, counts = computed(*(lazy[k] for k in numbers))
    assert runs(counts) <= CHUNKS * parts
    for one, k in zip(found, numbers, strict=True):
        np.testing.assert_array_equal(one, exact[k])


# In parts --------------------------------------------------------------------------------


def test_a_task_of_several_results_runs_in_parts() -> None:
    kernel = both.frozen()
    steps = (
        ProgramStep(np.multiply, (Register(0), 2.0), {}, True),
        ProgramStep(kernel, (Register(2), Register(1)), {}, True),
    )
    x, y = np.random.default_rng(0).normal(size=(2, 100))
    gpusched.reset_statistics()
    with in_pieces(4):
        found = Program(steps, 2)(x, y)
    assert gpusched.statistics().launches == 4
    for one, wanted in zip(found, numpy_both(x * 2, y), strict=True):
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("function", [one_of, np.add])
def test_tuples_are_divided_only_where_their_items_are_taken(function: Any) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 8))
    last = 1 if function is one_of else x
    steps = (
        ProgramStep(function, (Register(0), last), {}, True),
        ProgramStep(np.add, (Register(2), Register(1)), {}, True),
    )
    whole = Program(steps, 2)((x, y), y)
    with in_pieces(4):
        np.testing.assert_array_equal(Program(steps, 2)((x, y), y), whole)
    np.testing.assert_array_equal(whole, function((x, y), last) + y)
