"""What functions that are not recorded see of the memory layout of what other tasks computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.adapters.tasks import Task, TaskRef
from gpusched.breaks import GraphBreak
from gpusched.graph import disable, enable
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.showing import show
from gpusched.graph.programs.templates import Forms
from gpusched.graph.running.calling import Calling
from gpusched.plan import tiers
from gpusched.plan.plan import Plan, Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import statistics

pytestmark = pytest.mark.usefixtures("everything_fused", "kernels_at_once")


@pytest.fixture
def kernels_at_once() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.compile": "wait"}):
        yield


VALUES = np.arange(24.0).reshape(4, 6)


def array(order: Any = "C") -> da.Array:
    return da.from_array(np.array(VALUES, order=order), chunks=(4, 6), name=False)


def writes(x: Any) -> Any:
    flat = x.reshape(-1)
    flat += 1
    return x * 1


def strides(x: Any) -> Any:
    return np.array([x.strides])


def readers(x: da.Array) -> list[da.Array]:
    """Return two arrays whose tasks read the chunks, so that none of these is part of the other."""
    seen = x.map_blocks(strides, dtype=int, chunks=((1,), (x.ndim,)))
    return [x.map_blocks(writes), seen]


PROGRAMS: dict[str, Callable[[], list[da.Array]]] = {
    "a view": lambda: readers((array() * 2)[::2]),
    "a view of a view": lambda: readers((array() * 2).T[::2]),
    "columns": lambda: readers(array("F") * 2),
    "transposed operands": lambda: readers(array().T * 2 + array().T),
    "of several layouts": lambda: readers(array()[:, :4] * 2 + array()[:, :4].T),
    "real parts": lambda: readers((array() * (2 + 1j)).real),
    "by way of a recorded task": lambda: readers((array() * 2).T.persist(scheduler="sync") + 1),
    "by way of a library": lambda: readers((array() * 2).T.map_blocks(np.sort)),
    "a chunk that is kept": lambda: readers((array() * 2)[::2].persist(scheduler="sync")),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_see_numpy_s_layout_of_what_other_tasks_computed(program: str) -> None:
    def computed() -> list[Any]:
        return list(dask.compute(*PROGRAMS[program](), scheduler="sync"))

    with disable():
        expected = computed()
    for _ in range(2):  # recorded, and from the plan
        for found, wanted in zip(computed(), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_what_nobody_sees_is_computed_as_before() -> None:
    """Views are part of kernels, and NumPy is not asked."""
    x = array().T * 2 + array()[:, :4][:4, :4].sum()
    for order in "CF":
        found = dask.compute(x[::2] + 1, (array(order) * 2).T.sum(axis=0), scheduler="sync")
        assert found[0].shape == (3, 4)
    assert not [each for each in statistics().breaks if each[1].kind is GraphBreak.LAYOUT]


def test_numpy_computes_what_kernels_would_lay_out_otherwise() -> None:
    """One break for a kind of chunks, whose decision holds for all of them."""
    x = array().T * 2 + da.from_array(VALUES.T.copy(), chunks=(6, 4), name=False)[:, ::-1]
    assert dask.compute(*readers(x), scheduler="sync")[1].tolist() == [list(seen(x))]


def seen(x: da.Array) -> tuple[int, ...]:
    with disable():
        (chunk,) = dask.persist(x, scheduler="sync")[0].dask.values()
    return chunk.strides


def test_a_program_and_the_one_whose_result_is_shown_are_kept_together() -> None:
    """Other computations of the same array have their plans, whichever came first."""
    x = array() * 3 - 1
    with enable():
        kept = x.persist(scheduler="sync")
        x.compute(scheduler="sync")
        before = statistics().recorded.total()
        x.compute(scheduler="sync")
        kept = x.persist(scheduler="sync")
    assert statistics().recorded.total() == before
    np.testing.assert_array_equal(kept.compute(scheduler="sync"), VALUES * 3 - 1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Calling]:
    """Return what has called the functions of recorded segments, once for each time."""
    found: list[Calling] = []

    def note(name: str) -> None:
        run = getattr(Calling, name)

        def noted(self: Calling, *args: Any, **kwargs: Any) -> None:
            if all(step.recorded for _, step in self.steps):
                found.append(self)
            run(self, *args, **kwargs)

        monkeypatch.setattr(Calling, name, noted)

    for name in ("one_by_one", "on_blocks"):
        note(name)
    return found


def test_before_kernels_are_compiled_the_first_run_shows_numpy_s_layout(
    runs: list[Calling],
) -> None:
    """A first call takes as long as plain dask's: nothing is computed only to be looked at."""
    with dask.config.set({"gpusched.fusion.compile": "off"}):
        x = array("F") * 5 - 4
        dask.compute(*readers(x), scheduler="sync")
        assert len(runs) == 1
        dask.compute(*readers(x), scheduler="sync")
        assert len(runs) == 2
    assert statistics().recorded.total() == 1
    assert statistics().unfused_tasks == 2


def test_no_kernel_is_asked_for_where_the_first_run_shows_another_layout(
    runs: list[Calling],
) -> None:
    with dask.config.set({"gpusched.fusion.compile": "background"}):
        x = array().T * 3 + da.from_array(VALUES.T.copy(), chunks=(6, 4), name=False)[:, ::-1]
        found = dask.compute(*readers(x), scheduler="sync")
    assert found[1].tolist() == [list(seen(x))]
    assert GraphBreak.LAYOUT in [each[1].kind for each in statistics().breaks]
    assert statistics().unfused_tasks == 0
    assert not statistics().kernels_requested
    assert len(runs) == 1


def test_numpy_is_asked_before_kernels_run_that_become_ready_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = array().T * 4 + da.from_array(VALUES.T.copy(), chunks=(6, 4), name=False)[:, ::-1]
    x.compute(scheduler="sync")  # Its kernels are compiled: nobody sees the layout here.
    found: list[bool] = []

    def is_ready(plan: Plan) -> bool:
        found.append(bool(found) and ready(plan))
        return found[-1]

    ready = tiers.is_ready
    monkeypatch.setattr(tiers, "is_ready", is_ready)
    with dask.config.set({"gpusched.fusion.compile": "background"}):
        assert dask.compute(*readers(x), scheduler="sync")[1].tolist() == [list(seen(x))]
    assert found and not found[0]


def test_numpy_is_not_asked_where_no_array_comes_out(runs: list[Calling]) -> None:
    """Dictionaries of dask's are not compared, so that nothing is learned from another run."""
    x = da.from_array(VALUES, chunks=(2, 6), name=False)
    x.std(axis=0).persist(scheduler="sync")
    functions = {step.function.__name__ for calling in runs for _, step in calling.steps}
    assert "moment_chunk" not in functions
    assert statistics().fused_tasks >= 2


def test_a_program_without_steps_has_the_layout_of_what_it_is_given() -> None:
    # Such as a chunk that `rechunk` leaves as it is, in a graph that is optimised again.
    same = Task(("y", 0), Program((), 1), TaskRef("x"))
    graph = {same.key: same}
    show(graph, [same.key], dict(graph), Forms())
    assert graph[same.key].func is same.func


def test_tasks_of_others_are_left_as_they_are() -> None:
    double = ProgramStep(np.multiply, (Register(0), 2), {}, recorded=True)
    given = Task(("y", 0), Program((double,), 1), TaskRef("x"))
    own = Task(("z", 0), given.func, TaskRef("x"))
    graph = {given.key: given, own.key: own}
    show(graph, [given.key, own.key], {given.key: given}, Forms())
    assert graph[own.key] is own
    assert graph[given.key].func is own.func is given.func.shown()
    assert given.func is not own.func


def joins(items: Any, dtype: Any) -> Any:
    return sum(items) * np.ones(1, dtype)


def test_types_among_the_inputs_have_no_strides() -> None:
    join = ProgramStep(joins, (Register(0), Register(1)), {}, recorded=True)
    program = Program((join,), 2).shown()
    for _ in range(2):
        found = program([VALUES, VALUES + 1], np.float64)
        np.testing.assert_array_equal(found, VALUES * 2 + 1)
