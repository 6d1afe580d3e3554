"""The source of CUDA kernels, run by a simulator that has blocks, barriers and shared memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")

from gpusched.backends.cuda import simulator
from gpusched.backends.cuda.geometry import Geometry
from gpusched.backends.devices import HOST, Capabilities
from gpusched.backends.python import Window
from gpusched.emit import skeleton
from gpusched.emit.kernel import Access, Input, Kernel, Output
from gpusched.kernels import DivergenceError
from gpusched.record.moments import moments
from tests.backends.cuda.cases import ELEMENTWISE, REDUCTIONS, Case, numbers
from tests.backends.cuda.runtimes import SimulatorRuntime
from tests.record import recording
from tests.tiers import every


def ids(case: Case) -> str:
    return case.name


@pytest.fixture(params=[False, True], ids=["forwards", "backwards"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimulatorRuntime:
    found = SimulatorRuntime(backwards=request.param)
    monkeypatch.setitem(recording.BACKENDS, "simulator", found.get)
    return found


@pytest.mark.parametrize("case", every(6, [*ELEMENTWISE, *REDUCTIONS]), ids=ids)
def test_agrees_with_numpy(case: Case, runtime: SimulatorRuntime) -> None:
    recording.check(case.function, *case.arrays(), backend="simulator", ulp=case.ulp)
    assert runtime.launches


def test_long_reduction_is_split_over_blocks(runtime: SimulatorRuntime) -> None:
    recording.check(lambda a: a.sum(), numbers(30000), backend="simulator")
    (_, first), (second_kernel, second), *_ = runtime.launches
    assert first.grid[0] == first.splits > 1
    assert second_kernel.loops == ("reduce",)
    assert second.splits == 1


def test_one_sum_has_one_result_whatever_the_order_of_threads() -> None:
    array = np.random.default_rng(0).standard_normal(20000, dtype="float32")
    sums = []
    for backwards in (False, True):
        runtime = SimulatorRuntime(backwards)
        recording.BACKENDS["order"] = runtime.get
        sums.append(recording.record(lambda a: a.sum(), array, backend="order").result)
    del recording.BACKENDS["order"]
    assert sums[0] == sums[1]


@pytest.mark.parametrize(("shape", "axis"), [((1, 7), 0), ((4, 1, 5), 1), ((1, 1), (0, 1))])
def test_moments_of_one_value_each(
    shape: tuple[int, ...], axis: Any, runtime: SimulatorRuntime
) -> None:
    """As in the last of chunks that do not divide an axis."""
    x = 1e5 + np.arange(math.prod(shape), dtype=float).reshape(shape)
    can = Capabilities(host_memory=True, begins=True)
    axes = axis if isinstance(axis, tuple) else (axis,)
    mean, rest, squares = recording.record(
        lambda a: tuple(moments(a, axes, 1)), x, backend="simulator", device=replace(HOST, can=can)
    ).result
    np.testing.assert_array_equal(mean, x)
    assert not rest.any() and not squares.any()


@pytest.mark.parametrize("shape", [(3000, 2), (2, 300), (1, 20000), (30, 5, 40)])
def test_moments_lose_no_digits_whatever_the_order_of_threads(
    shape: tuple[int, ...], runtime: SimulatorRuntime
) -> None:
    """Partial results are joined with how many values each has."""
    x = 1e8 + np.random.default_rng(0).normal(size=shape)
    can = Capabilities(host_memory=True, begins=True)
    axis = (0, 2) if len(shape) == 3 else 0 if shape[0] > 2 else 1
    found = recording.record(lambda a: np.var(a, axis=axis), x, backend="simulator",
                             device=replace(HOST, can=can)).result  # fmt: skip
    wide = x.astype("longdouble")
    np.testing.assert_allclose(found, wide.var(axis=axis).astype("f8"), rtol=1e-13)
    constant = recording.record(lambda a: np.var(a, axis=axis), np.full(shape, 0.1),
                                backend="simulator", device=replace(HOST, can=can))  # fmt: skip
    assert not constant.result.any()


def row_sums() -> Kernel:
    strided, unit, still = Access.STRIDED, Access.UNIT, Access.BROADCAST
    output = Output(0, "float32", (strided, still), "add", "float32")
    return Kernel((Input("float32", (strided, unit)),), (), (), (output,), ("map", "reduce"))


def simulate(text: str, backwards: bool) -> list[float]:
    """Return the sums of 3 rows of ones, each twice as long as the block is wide, one by one."""
    found = simulator.namespace()
    exec(compile(text, "<kernel>", "exec"), found)
    rows = np.arange(1, 4, dtype="float32").repeat(64)
    out = np.full(3, np.nan, "float32")
    arguments: tuple[Any, ...] = (Window(rows), Window(out), 3, 64, 64, 1, 0, 1)
    simulator.run(found["kernel"], Geometry((1, 1, 1), (32, 1, 1), 0), arguments, backwards)
    return out.tolist()


def test_simulator_shows_each_missing_barrier() -> None:
    text = skeleton.source(row_sums())
    right = [[64.0, 128.0, 192.0]] * 2
    assert [simulate(text, order) for order in (False, True)] == right
    lines = text.splitlines()
    barriers = [k for k, line in enumerate(lines) if line.strip() == "barrier()"]
    assert len(barriers) == 2
    for k in barriers:
        changed = lines.copy()
        changed[k] = changed[k].replace("barrier()", "pass")
        assert [simulate("\n".join(changed), order) for order in (False, True)] != right


def test_simulator_refuses_a_barrier_that_only_some_threads_reach() -> None:
    text = "def kernel(*arguments):\n    if thread_x() < 3:\n        barrier()\n"
    with pytest.raises(DivergenceError, match="do not meet at one barrier"):
        simulate(text, backwards=False)


def test_simulator_refuses_an_unaligned_vector() -> None:
    text = "def kernel(a, out, n0, n1, a_s0, out_s0, vectors, each):\n    load4(a, 1)\n"
    with pytest.raises(AssertionError, match="4 elements at"):
        simulate(text, backwards=False)
