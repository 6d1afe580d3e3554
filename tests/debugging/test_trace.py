"""A trace shows every value with the user's names and lines, and marks the first NaN or inf."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.inspection.programs import PROGRAMS, numbers
from tests.tiers import every


def traced(x: Any, index: Any, **options: Any) -> Any:
    return gpusched.trace_element(x, index, **options)


def test_values_names_and_lines() -> None:
    x = da.from_array(np.arange(40.0), chunks=20)
    shifted = x - 5
    scaled = shifted * 2.5
    trace = traced(np.sqrt(scaled), 30)
    assert [step.name for step in trace.steps] == ["x", "shifted", "scaled", trace.steps[3].name]
    assert [float(step.value) for step in trace.steps] == [30, 25, 62.5, 62.5**0.5]
    assert [step.operation for step in trace.steps] == ["", "subtract", "multiply", "sqrt"]
    assert [step.dtype for step in trace.steps] == ["float64"] * 4
    assert trace.steps[1].place.text == "shifted = x - 5"
    assert trace.steps[2].expression == "shifted * 2.5"
    assert str(trace.steps[0].where) == "x[30]"
    assert (trace.array, trace.index, trace.chunk) == (trace.array, (30,), (1,))


def test_the_first_that_is_not_finite_is_marked() -> None:
    x = da.from_array(np.arange(40.0), chunks=20)
    below = x - 30
    trace = traced(np.maximum(1 / below, 0) * 2, 30)
    step = trace.first_nonfinite
    assert (step.operation, step.finite, float(step.value)) == ("divide", False, np.inf)
    marked = [line for line in trace.text().splitlines() if "first that is not finite" in line]
    assert len(marked) == 1 and "/ below" in marked[0]


def test_all_finite() -> None:
    trace = traced(numbers((40, 30), 20) * 2 + 1, (3, 4))
    assert trace.first_nonfinite is None
    assert "not finite" not in trace.text()


def test_earlier_tasks_are_followed_to_where_their_data_is_from() -> None:
    x = da.from_array(np.arange(1600.0).reshape(40, 40), chunks=10)
    doubled = x * 2 + 1
    moved = doubled.rechunk((40, 5)).T[::-1]
    trace = traced(moved * 3 - 1, (4, 7))
    assert str(trace.steps[0].where) == "x[7, 35]"
    assert "doubled" in [step.name for step in trace.steps]
    near = traced(moved * 3 - 1, (4, 7), depth=0)
    assert "not followed further" in near.steps[0].note
    assert near.value == trace.value


def test_a_negative_depth() -> None:
    with pytest.raises(ValueError, match="depth=-1: a number of tasks"):
        traced(numbers((40,), 20) + 1, 3, depth=-1)


def test_reductions_are_inputs() -> None:
    x = da.from_array(np.arange(40.0), chunks=20)
    centred = (x - x.mean()) * 2
    trace = traced(centred, 3)
    (mean,) = [step for step in trace.steps if "mean_agg" in step.note]
    assert (float(mean.value), mean.note) == (19.5, "comes out of mean_agg, of 2 chunks")


def test_a_reduction_inside_a_chunk() -> None:
    def centred(block: Any) -> Any:
        middle = block.mean()
        return (block - middle) * 2

    x = da.from_array(np.arange(40.0), chunks=20)
    trace = traced(x.map_blocks(centred, dtype=float), 3)
    (total,) = [step for step in trace.steps if step.kind == "reduction"]
    assert (total.expression, float(total.value)) == ("add over 20 elements", 190.0)
    assert ("middle", 9.5) in [(step.name, float(step.value)) for step in trace.steps]


def test_a_reduction_is_gone_into_for_what_is_not_finite() -> None:
    def centred(block: Any) -> Any:
        return (block - np.log(block).sum()) * 2

    x = da.from_array(np.arange(40.0), chunks=20)
    trace = traced(x.map_blocks(centred, dtype=float), 3)
    assert trace.first_nonfinite.operation == "log"
    assert str(trace.first_nonfinite.where) == "x[0]"
    assert "not finite: 1 of 20" in trace.text()


def test_functions_that_are_not_fused_are_told() -> None:
    x = numbers((40, 30), (20, 30))
    trace = traced((x * 2 + 1).map_blocks(np.sort, axis=1) * 2, (3, 4))
    (call,) = [step for step in trace.steps if step.operation == "sort"]
    assert (call.kind, call.note.partition(":")[0]) == ("call", "not fused")


def test_constants_are_shown_as_numbers() -> None:
    trace = traced(numbers((40,), 20) * 57.25 - 3.125, 3)
    assert [s.expression.split()[-1] for s in trace.steps[-2:]] == ["57.25", "3.125"]


def test_it_is_for_printing(capsys: pytest.CaptureFixture[str]) -> None:
    found = gpusched.trace_element(numbers((40,), 20) + 1.5, 3)
    assert not capsys.readouterr().out
    assert str(found) == found.text()
    assert repr(found) == str(found)  # What a notebook shows.


@pytest.mark.parametrize("name", every(2, PROGRAMS))
def test_all_programs(name: str) -> None:
    build = PROGRAMS[name]
    program = build()
    for x in program if isinstance(program, list) else [program]:
        trace = traced(x, (0,) * x.ndim)
        assert trace.text().count("\n") > len(trace.steps)
        assert all(step.dtype for step in trace.steps)


def test_each_part_of_an_array_is_traced_to_its_own_kernel() -> None:
    values = np.random.default_rng(0).normal(size=(12, 5))
    x = da.from_array(values, chunks=(6, 5))
    gradient = da.gradient(x, axis=0) * 3
    for row, neighbours in [(0, {0, 1}), (3, {2, 4}), (6, {5, 7}), (11, {10, 11})]:
        found = traced(gradient, (row, 2))
        assert {values[k, 2] for k in neighbours} <= {step.value for step in found.steps}
        assert found.steps[-1].value == 3 * np.gradient(values, axis=0)[row, 2]


def cut(rows: int) -> da.Array:
    """Return what is computed of pieces of chunks, which a task cuts off before it records that."""
    x = da.from_array(np.arange(800.0).reshape(40, 20), chunks=(20, 20))
    piece = x[:rows]
    return piece * 2 - 1


@pytest.mark.parametrize(("rows", "fused"), [(5, False), (18, True)])
def test_pieces_are_large_enough_or_not_as_in_the_computation(rows: int, fused: bool) -> None:
    with dask.config.set({"gpusched.fusion.minimum-elements": 300}):
        trace = traced(cut(rows), (1, 2))
        gpusched.reset_statistics()
        cut(rows).compute()
    assert bool(gpusched.statistics().launches) == fused
    assert ("operation" in [step.kind for step in trace.steps]) == fused
    assert ("not fused: small chunks" in [step.note for step in trace.steps]) != fused
    assert float(trace.value) == 22 * 2 - 1


def test_pieces_have_the_users_names() -> None:
    trace = traced(cut(18), (1, 2))
    assert str(trace.steps[0].where) == "x[1, 2]"
    assert trace.steps[1].expression.startswith("piece * ")


def test_a_branch_that_the_computation_leaves_to_numpy_is_left_to_it() -> None:
    """Which way a rounded number decides is not what kernels are trusted with."""

    def either(block: Any) -> Any:
        if np.exp(block).sum() > 1e9:
            return block * 2 - 1
        return block * 3 + 1

    x = da.from_array(np.arange(400.0), chunks=400).map_blocks(either, dtype="float64")
    trace = traced(x, (7,))
    gpusched.reset_statistics()
    x.compute()
    assert not gpusched.statistics().launches
    assert "operation" not in [step.kind for step in trace.steps]
