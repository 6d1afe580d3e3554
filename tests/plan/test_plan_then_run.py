"""The first chunk runs the plan that later ones repeat, so that equal chunks have equal results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.plan.plan import Launch
from gpusched.plan.unjoined import UnjoinedLaunch
from gpusched.record.chunk import LazyChunk, compute, lazies, references
from gpusched.record.record import Recorder
from tests.plan.tiled import make_small, put_some, tiles_of
from tests.record.recording import record
from tests.tiers import exhaustive

RANDOM = np.random.default_rng(7)

STEPS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda x: x - np.mean(x, axis=0),
    "standardise": lambda x: (x - np.mean(x, axis=1, keepdims=True)) / (np.std(x, axis=0) + 1),
    "softmax": lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)),
    "scale": lambda x: x / (np.sum(np.abs(x), axis=1, keepdims=True) + 1),
    "sort": lambda x: np.sort(x, axis=1),
    "reverse": lambda x: x[::-1] * 2,
    "sine": lambda x: np.sin(x) + x,
    "copy": np.copy,
}
"""What a program may do with a matrix."""

ENDS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum,
    "columns": lambda x: np.sum(x, axis=0),
    "rows": lambda x: (np.std(x, axis=1), np.max(x, axis=1)),
    "variance": np.var,
    "variances": lambda x: (np.var(x, axis=0), np.var(x, axis=1)),
    "matrix": lambda x: x + 1,
}
"""What it returns of it."""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the kernels that run, as they do."""
    found: list[str] = []
    call = Launch.__call__

    def noted(self: Launch, registers: Any) -> None:
        found.append(self.name)
        call(self, registers)

    monkeypatch.setattr(Launch, "__call__", noted)
    return found


def bits(found: Any) -> list[bytes]:
    """Return the bytes of some results."""
    return [np.asarray(each).tobytes() for each in (found if type(found) is tuple else (found,))]


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.sampled_from(sorted(ENDS)),
    st.tuples(st.integers(1, 300), st.integers(1, 40)),
    st.sampled_from(["f4", "f8"]),
    st.sampled_from([0, 1e8]),
    st.data(),
)
def test_the_first_result_is_that_of_the_plan(
    steps: list[str], end: str, shape: tuple[int, int], dtype: str, offset: float,
    data: st.DataObject,
) -> None:  # fmt: skip
    def program(x: Any) -> Any:
        for step in steps:
            x = STEPS[step](x)
        return ENDS[end](x)

    x = (offset + np.random.default_rng(shape).normal(size=shape)).astype(dtype)
    put_some(x, (np.nan, np.inf), data)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        make_small(patch, 4096)
        recorded = record(program, x)
        again = recorded.run(x)
    assert bits(recorded.result) == bits(again)
    assert recorded.recorder.repeatable == ("sort" not in steps)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_runs_while_a_program_is_recorded(end: str, launched: list[str]) -> None:
    x = RANDOM.normal(size=(300, 40))
    recorder = Recorder()
    result = ENDS[end](STEPS["standardise"](LazyChunk(recorder, recorder.leaf(x))))
    recorder.flush(lazies(result))
    assert recorder.steps and not launched


def test_the_first_chunk_runs_each_kernel_once(launched: list[str]) -> None:
    x = RANDOM.normal(size=(300, 40))
    plan = record(lambda x: ENDS["rows"](STEPS["standardise"](x)), x).plan
    assert launched == plan.names


def test_a_function_that_is_no_kernel_is_called_once_with_values(launched: list[str]) -> None:
    x = RANDOM.normal(size=(300, 40))
    given: list[np.ndarray] = []

    def sort(array: np.ndarray) -> np.ndarray:
        given.append(array.copy())
        return np.sort(array, axis=1)

    recorder = Recorder()
    chunk = -LazyChunk(recorder, recorder.leaf(x)) * 3
    result = compute(recorder, sort, (chunk,), {}) + 1
    recorder.flush(lazies(result))
    structure = references(recorder, result)
    plan = recorder.plan(((0, 0),), structure)
    found, _ = recorder.run(plan, (x,))
    assert len(given) == 1 and len(launched) == 2
    np.testing.assert_array_equal(given[0], -x * 3)
    np.testing.assert_array_equal(found, np.sort(-x * 3, axis=1) + 1)


def test_the_first_chunk_takes_the_joints_of_arrays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[UnjoinedLaunch] = []
    call = UnjoinedLaunch.__call__

    def noted(self: UnjoinedLaunch, registers: Any) -> None:
        run.append(self)
        call(self, registers)

    monkeypatch.setattr(UnjoinedLaunch, "__call__", noted)
    x = da.from_array(RANDOM.normal(size=(1200, 900)), chunks=(600, 900))
    whole = x.rechunk((1200, 900))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = (whole * 2 + 1).compute(scheduler="sync")
    assert len(run) == 1
    np.testing.assert_array_equal(found, x.compute(scheduler="sync") * 2 + 1)


@pytest.mark.parametrize("offset", [0, 1e8])
@pytest.mark.parametrize("dtype", ["f4", *exhaustive("f8")])
@pytest.mark.parametrize("of", [
    lambda x: x.std(axis=1), lambda x: x.var(axis=0), lambda x: da.nanstd(x, axis=1),
    lambda x: x.map_blocks(np.sort) + 1, lambda x: (x - x.mean(axis=1)[:, None]) * 2,
    lambda x: x.map_blocks(STEPS["softmax"]).sum(axis=1),
])  # fmt: skip
def test_equal_chunks_have_equal_results(
    of: Callable[[Any], Any], dtype: str, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded from the first, repeated for the others, and once more for all."""
    make_small(monkeypatch)
    part = (offset + RANDOM.normal(size=(200, 64))).astype(dtype)
    x = da.from_array(np.concatenate([part] * 3), chunks=part.shape)
    with gpusched.enable():
        found = [of(x).compute(scheduler="sync") for _ in range(2)]
    assert bits(found[0]) == bits(found[1])
    if len(found[0]) == len(x):
        assert len({chunk.tobytes() for chunk in np.split(found[0], 3)}) == 1


def test_rows_and_columns_share_tiles_from_the_first_chunk_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_small(monkeypatch)
    x = 1e8 + RANDOM.normal(size=(900, 64))
    recorded = record(ENDS["variances"], x)
    assert tiles_of(recorded.plan)
    assert bits(recorded.result) == bits(recorded.run(x))
    for found, wanted in zip(recorded.result, ENDS["variances"](x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
