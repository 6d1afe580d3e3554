"""Calls that may change what others of their task read: `gpusched.graph.functions.unrecorded`."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.adapters.tasks import renamed
from gpusched.breaks import GraphBreak
from gpusched.graph import disable, enable
from gpusched.graph.functions.unrecorded import conflict, may_change
from gpusched.plan.plan import Register
from gpusched.record.catalogue import has
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics


def changes(array: Any) -> Any:
    array[:] = 0
    return array


def picked(array: int, index: int) -> ProgramStep:
    return ProgramStep(operator.getitem, (Register(array), Register(index)), recorded=True)


def test_what_is_picked_shares_nothing_with_its_index() -> None:
    changing = ProgramStep(changes, (Register(0),))
    assert conflict([changing, picked(2, 1)], 2) is None
    assert conflict([changing, picked(1, 0)], 2) is changing
    assert conflict([changing, picked(0, 1)], 2) is changing


def test_what_renames_tasks_of_an_array_given_to_delayed_changes_nothing() -> None:
    graph = dask.delayed(np.sum)(da.ones(4, chunks=2)).dask
    called = [f for node in graph.values() if (f := getattr(node, "func", None)) is renamed]
    assert len(called) == 3  # Of both chunks, and of the array that they become.
    assert has(renamed, "view")
    assert not may_change(ProgramStep(renamed, (Register(0),)))


def opaque(*arguments: Any) -> Any:
    """Stand for a function that is not known."""
    return arguments


def opaque_step(*registers: int) -> ProgramStep:
    return ProgramStep(opaque, tuple(map(Register, registers)))


def test_what_a_later_step_makes_of_the_result_connects_no_inputs() -> None:
    # A chunk's function, and one that is given its result and something else.
    steps = [opaque_step(0, 1), opaque_step(4, 2), opaque_step(5, 3, 2)]
    assert conflict(steps, 4) is None
    # A result that has both before the change is another matter.
    assert conflict([opaque_step(0, 2), opaque_step(0, 1), opaque_step(5, 4)], 4) is not None


CHUNK = np.where(np.arange(20_000.0) % 7 == 0, np.nan, np.arange(20_000.0)).reshape(2, -1)
ASKING = {
    "nan_to_num": lambda x: x.map_blocks(np.nan_to_num, copy=False, dtype=float),
    "by position": lambda x: x.map_blocks(np.nan_to_num, False, dtype=float),
    "partial": lambda x: x.map_blocks(partial(np.nan_to_num, copy=False), dtype=float),
    "ufunc": lambda x: da.map_blocks(np.add, x, 1, x, dtype=float),
    "median": lambda x: x.map_blocks(np.median, 1, None, True, True, dtype=float, chunks=(1, 1)),
    "not": lambda x: x.map_blocks(np.nan_to_num, copy=True, dtype=float),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ASKING)
def test_a_change_that_a_known_function_is_asked_for(name: str, first: bool) -> None:
    """It is seen by what computes with the same chunk when plain dask lets it see it."""

    def program() -> Any:
        x = da.from_array(CHUNK.copy(), chunks=(1, CHUNK.shape[1])) * 3
        one, other = ASKING[name](x), x * 2
        return one + other if first else other - one

    with disable():
        plain = program().compute(scheduler="sync")
    reset_statistics()
    with enable(), dask.config.set({"gpusched.fusion.compile": "off"}):
        np.testing.assert_array_equal(program().compute(scheduler="sync"), plain)
    found = {reason.kind for _, reason in statistics().breaks}
    assert (GraphBreak.CONFLICT in found) is (name != "not")


# Programs that are run in any order, with copies in place of views: the result is the same unless
# there is a conflict.


def changed(number: int, gives: int) -> Any:
    def change(*arrays: Any) -> Any:
        for each in arrays[: 1 + number % 2]:
            each *= number + 2
            each += number
        return arrays[gives % len(arrays)] if gives else np.array(sum(arrays))

    return change


def shifted(array: Any) -> Any:
    return array[::-1]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[ProgramStep], int]:
    """Return steps that change, show, or compute arrays, and the number of inputs."""
    inputs = draw(st.integers(1, 4))
    steps = []
    for number in range(draw(st.integers(2, 5))):
        registers = st.integers(0, inputs + number - 1).map(Register)
        kind = draw(st.sampled_from(["change", "show", "compute", "give", "ask"]))
        count = {"show": 1, "compute": 2, "ask": 3}.get(kind) or draw(st.integers(1, 3))
        args = tuple(draw(st.lists(registers, min_size=count, max_size=count)))
        if kind == "show":
            steps.append(ProgramStep(operator.getitem, (*args, slice(None)), recorded=True))
        elif kind in ("compute", "ask"):  # With two arguments, or with an output as well.
            steps.append(ProgramStep(np.add, args, recorded=True))
        else:
            gives = draw(st.integers(0, 3)) if kind == "change" else 1
            function = changed(number, gives) if kind == "change" else shifted
            steps.append(ProgramStep(function, args if kind == "change" else args[:1]))
    return steps, inputs


def run(steps: list[ProgramStep], inputs: int, order: list[int], copied: set[int]) -> Any:
    """Return the inputs and the last result after steps in some order, some views copied."""
    registers: dict[int, Any] = {k: np.arange(4) + 10 * k + 1 for k in range(inputs)}
    for k in order:
        step = steps[k]
        args = [registers[a.number] if type(a) is Register else a for a in step.args]
        found = step.function(*args)
        apart = k in copied and step.recorded and not may_change(step)
        registers[inputs + k] = found.copy() if apart else found
    return [registers[k].tolist() for k in (*range(inputs), inputs + len(steps) - 1)]


@given(programs(), st.data())
def test_without_a_conflict_the_order_does_not_matter(program: Any, data: st.DataObject) -> None:
    steps, inputs = program
    if conflict(steps, inputs) is not None:
        return
    plain = list(range(len(steps)))
    left, order = set(plain), []
    while left:
        ready = [k for k in left if all(r < inputs or r - inputs in order
                                        for r in steps[k].registers)]  # fmt: skip
        order.append(data.draw(st.sampled_from(sorted(ready))))
        left.remove(order[-1])
    # What is not recorded gets views as NumPy has them, be they views of others.
    seen: set[int] = set()
    for k in reversed(plain):
        if not steps[k].recorded or (k in seen and steps[k].function is operator.getitem):
            seen |= {r - inputs for r in steps[k].registers}
    copied = data.draw(st.sets(st.sampled_from(plain))) - seen
    assert run(steps, inputs, order, copied) == run(steps, inputs, plain, set())
