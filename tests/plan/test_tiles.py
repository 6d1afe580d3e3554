"""Kernels that run together on tiles of rows give what each gives alone, bit by bit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.emit.floatingpoint import INVALID, take
from gpusched.emit.policy import TILE_ROWS
from gpusched.plan import tiles
from gpusched.plan.plan import Launch, Plan, last_uses, reads, used_registers, written
from gpusched.plan.tiles import TiledLaunches
from tests.plan.tiled import make_small, profiled, put_some, tiles_of
from tests.record.recording import record
from tests.tiers import every, exhaustive


def softmax(x: Any) -> Any:
    largest = np.max(x, axis=1, keepdims=True)
    powers = np.exp(x - largest)
    return powers / np.sum(powers, axis=1, keepdims=True), np.log(np.sum(powers, axis=1))


def statistics(x: Any) -> Any:
    rows = np.sum(x, axis=1, keepdims=True)
    columns = np.sum(x, axis=0, keepdims=True)
    return (
        np.sum(np.abs(x - rows / x.shape[1]), axis=1),
        np.sum(np.abs(x - columns / x.shape[0]), axis=0),
        rows,
        columns,
    )


def centred(x: Any) -> Any:
    return x - np.mean(x, axis=-1, keepdims=True), np.max(x, axis=0)


def scaled(x: Any) -> Any:
    return x / np.sum(x, axis=1, keepdims=True)


def deviations(x: Any) -> Any:
    return np.std(x, axis=0), np.std(x, axis=1), np.max(x, axis=1)


FUNCTIONS = [softmax, statistics, centred, scaled, deviations]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiles have few rows, also of small arrays."""
    make_small(monkeypatch)


def groups(plan: Plan) -> list[list[str]]:
    """Return the names of what runs together, by group."""
    return [[each.name for each in step.launches] for step in tiles_of(plan)]


def alone(plan: Plan) -> Plan:
    """Return the plan with each kernel by itself, in the order in which they were recorded."""
    ends = last_uses(map(reads, plan.steps), used_registers(plan.result))
    stages = tuple((s, isinstance(s, Launch), end) for s, end in zip(plan.steps, ends, strict=True))
    return replace(plan, stages=stages)


def assert_identical(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(
            np.ascontiguousarray(one).view("u1"), np.ascontiguousarray(other).view("u1")
        )


def as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8", "i8")])
@pytest.mark.parametrize(
    "layout",
    ["C", *exhaustive("F", "backwards", "every other")],
)
def test_results_are_those_of_whole_chunks(function: Any, dtype: str, layout: str) -> None:
    numbers = np.random.default_rng(1).integers(1, 99, (203, 96)).astype(dtype)
    x = {
        "C": numbers,
        "F": np.asfortranarray(numbers),
        "backwards": numbers[::-1, ::-1],
        "every other": np.repeat(numbers, 2, axis=1)[:, ::2],
    }[layout]
    plan = record(function, x).plan
    together_, _ = plan.run((x,))
    alone_, _ = alone(plan).run((x,))
    assert_identical(as_list(together_), as_list(alone_))
    expected = as_list(function(x))
    for one, other in zip(as_list(together_), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-4)
    if layout != "F":
        assert groups(plan)


def away(x: Any) -> Any:
    sums = np.sum(x, axis=1, keepdims=True)
    away = x - sums
    return away - np.sum(away, axis=1, keepdims=True), np.sum(x > sums, axis=1), sums


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i8"])
def test_the_loop_converts_results_to_float32_only(dtype: str) -> None:
    x = np.random.default_rng(1).integers(1, 9, (203, 96)).astype(dtype)
    plan = record(away, x).plan
    written = [output for step in tiles_of(plan) for launch in step.launches
               for output in launch.outputs]  # fmt: skip
    kept = {(str(each.dtype), str(each.result_dtype)) for each in written}
    assert {(one, other) for one, other in kept if one != other} <= {("float64", "float32")}
    assert_identical(as_list(plan.run((x,))[0]), as_list(alone(plan).run((x,))[0]))


@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(["f4", "f8"]),
    st.integers(64, 4096),
    st.data(),
)
@pytest.mark.slow
def test_any_shape_and_any_size_of_tiles(
    function: Any, rows: int, columns: int, dtype: str, room: int, data: st.DataObject
) -> None:
    x = np.random.default_rng(rows * columns).normal(size=(rows, columns)).astype(dtype)
    put_some(x, (np.nan, np.inf), data)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        make_small(patch, room)
        plan = record(function, x).plan
        assert_identical(as_list(plan.run((x,))[0]), as_list(alone(plan).run((x,))[0]))


@pytest.mark.usefixtures("small")
def test_a_softmax_is_computed_row_by_row() -> None:
    plan = record(softmax, np.ones((512, 64), "f4")).plan
    (found,) = groups(plan)
    assert [name.split("_")[0] for name in found[:2]] == ["maximum", "subtract"]
    assert any("divide" in name for name in found)


@pytest.mark.usefixtures("small")
def test_memory_is_read_row_by_row() -> None:
    plan = record(lambda x: (np.sum(x, axis=0), np.max(x, axis=1)), np.ones((512, 64))).plan
    (found,) = groups(plan)
    assert [name.split("_")[0] for name in found] == ["maximum", "add"]


@pytest.mark.usefixtures("small")
def test_what_reads_whole_columns_comes_after() -> None:
    plan = record(statistics, np.ones((512, 64))).plan
    (found,) = tiles_of(plan)
    inside = {output.register for launch in found.launches for output in launch.outputs}
    columns = [k for launch in found.launches for k in launch.outputs if k.shape == (64,)]
    assert len(found.launches) == 3 and len(columns) == 1
    later = [s for s, launches, _ in plan.stages if launches and s is not found]
    assert any(inside & reads(step) for step in later)


def test_what_stays_in_the_cache_runs_whole() -> None:
    assert not groups(record(softmax, np.ones((64, 64))).plan)


def test_a_large_chunk_is_cut_into_tiles() -> None:
    columns = 1024
    rows = 5 * tiles.room() // (8 * columns)
    plan = record(softmax, np.ones((rows, columns))).plan
    (found,) = tiles_of(plan)
    assert found.rows * columns * 8 <= tiles.room() and not found.rows % TILE_ROWS


def sorted_rows(x: Any) -> Any:
    """Temporaries as large as the chunk, which go when the next one has been made."""
    first = np.sort(x - np.sum(x, axis=1, keepdims=True), axis=1)
    second = np.sort(x * np.max(x, axis=1, keepdims=True), axis=1)
    third = np.sort(second / np.min(second, axis=1, keepdims=True), axis=1)
    return np.sum(first, axis=1), np.max(third, axis=1), x / np.sum(x, axis=1, keepdims=True)


def peak(plan: Plan, registers: list[Any]) -> int:
    """Return the most bytes of results that a plan holds at a time."""
    held, most = set(), 0
    for step, _, ends in plan.stages:
        held |= set().union(
            *map(written, step.launches if isinstance(step, TiledLaunches) else [step])
        )
        most = max(most, sum(registers[k].nbytes for k in held))
        held -= set(ends)
    return most


@pytest.mark.parametrize("function", every(3, [*FUNCTIONS, sorted_rows]), ids=lambda f: f.__name__)
def test_no_more_memory_is_held(function: Any) -> None:
    x = np.ones((5 * tiles.room() // 8192, 1024))
    found = record(function, x)
    registers = [x, *[None] * (found.plan.size - 1)]
    for register, array in found.plan.constants:
        registers[register] = array
    for step in found.plan.steps:
        step(registers)
    assert groups(found.plan)
    assert peak(found.plan, registers) <= peak(alone(found.plan), registers) + tiles.room() // 8


@pytest.mark.usefixtures("small")
def test_errors_of_any_tile_are_noted() -> None:
    x = np.ones((512, 64))
    plan = record(scaled, x).plan
    assert groups(plan)
    x[300] = 0
    take()
    plan.run((x,))
    assert take() & INVALID
    plan.run((np.ones((512, 64)),))
    assert take() == 0


@pytest.mark.usefixtures("small")
def test_profiles_time_what_runs_together_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile is of what is computed without one."""
    x = np.ones((512, 64))
    plan = record(scaled, x).plan
    (tiled,) = tiles_of(plan)
    plan.run((x,))
    assert tiled.natives is not None
    monkeypatch.setattr(Launch, "__call__", MagicMock(side_effect=AssertionError))
    _, (found,) = profiled(plan, x)
    assert found.name == tiled.name == " + ".join(each.name for each in tiled.launches)
    assert found.nbytes == sum(plan.traffic) - tiled.bytes_cached
    assert found.about == ("cpu", tiled.steps)


@pytest.mark.processes
@pytest.mark.slow
def test_the_loop_comes_from_disk(tmp_path: Any) -> None:
    script = (
        "import sys, dask, numpy as np, gpusched\n"
        "from gpusched.plan import tiles\n"
        "from tests.plan import test_tiles as t\n"
        "tiles.room = lambda: 1 << 15\n"
        "tiles._Together._is_large = lambda self, registers: False\n"
        "x = np.ones((512, 64))\n"
        "plan = t.record(t.softmax, x).plan\n"
        "assert t.groups(plan)\n"
        "plan.run((x,))\n"
        "print(gpusched.statistics().compilations)\n"
    )
    environment = {"DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(tmp_path)}
    run = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                       env={**os.environ, **environment}).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert int(run[0]) > 0 and int(run[1]) == 0


def test_tiles_do_not_wait_for_kernels_of_other_tiles() -> None:
    compiled, asked = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        asked.set()
        assert compiled.wait(60)

    def tiles_with(wait: Any) -> TiledLaunches:
        kernel = SimpleNamespace(native=None, wait=wait)
        launch: Any = MagicMock(kernel=kernel)
        return TiledLaunches((launch,), 8)

    waiting = threading.Thread(target=tiles_with(compile_slowly), args=([],))
    other = threading.Thread(target=tiles_with(lambda: None), args=([],))
    waiting.start()
    assert asked.wait(60)
    other.start()
    other.join(10)
    finished = not other.is_alive()
    compiled.set()
    waiting.join()
    other.join()
    assert finished, "it waits for a lock that is held while another one's kernels are compiled"
