"""Why a task was recorded: what was new about its chunks can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph.running import decisions as newness

SETTINGS = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "off"}


@pytest.fixture(autouse=True)
def fused(no_plans: None) -> Iterator[None]:
    with dask.config.set(SETTINGS), gpusched.enable():
        gpusched.reset_statistics()
        yield


def chunk(*shape: int, dtype: str = "f8", order: Any = "C") -> np.ndarray:
    return np.ones(shape, dtype, order=order)


def recorded(*chunks: np.ndarray) -> list[str]:
    """Return why tasks of one program were recorded for these chunks, one after the other."""
    task = da.from_array(chunk(4, 6)).map_blocks(lambda x: (x * 2 + 1) / 3, dtype="f8")
    (found,) = dask.optimize(task)
    program = next(n.func for n in dict(found.dask).values() if hasattr(n.func, "segments"))
    reasons = []
    for each in chunks:
        before = gpusched.statistics().recorded
        program(each)
        reasons += [what for _, what in (gpusched.statistics().recorded - before).elements()]
    return reasons


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda: chunk(4, 6), []),
        (lambda: chunk(3, 6), ["another shape of input 0"]),
        (lambda: chunk(4, 6, dtype="f4"), ["another dtype of input 0"]),
        (lambda: chunk(4, 6, order="F"), ["other strides of input 0"]),
    ],
    ids=["same", "shape", "dtype", "strides"],
)
def test_what_is_new_is_counted(other: Callable[[], np.ndarray], what: list[str]) -> None:
    assert recorded(chunk(4, 6), other()) == [newness.FIRST, *what]


def test_values_and_all_inputs_that_differ_are_named() -> None:
    array, number = (np.dtype("f8"), (4,), (8,)), (float, (2.0).hex())
    known = [(array, number)]
    assert newness.newness((array, (float, (3.0).hex())), known) == "another value of input 1"
    both = ((np.dtype("f4"), (4,), (4,)), (float, (3.0).hex()))
    assert newness.newness(both, known) == "another dtype of input 0, another value of input 1"
    assert newness.newness(both, [*known, (array, both[1])]) == "another dtype of input 0"
    assert newness.newness((array,), known) == newness.FIRST


def test_what_functions_read_may_have_changed() -> None:
    scale = 2.0

    def scaled(x: Any) -> Any:
        return x * scale + 1

    (found,) = dask.optimize(da.from_array(chunk(4, 6)).map_blocks(scaled, dtype="f8"))
    found.compute(scheduler="sync")
    scale = 3.0
    np.testing.assert_array_equal(found.compute(scheduler="sync"), np.full((4, 6), 4.0))
    assert [what for _, what in gpusched.statistics().recorded] == [newness.FIRST, newness.CHANGED]


@pytest.mark.parametrize("dtype", [">f4", "m8[s]", np.longdouble, "U8"])
def test_calls_before_one_that_gives_what_no_kernel_has_are_recorded_once(dtype: Any) -> None:
    x = da.from_array(np.arange(48.0).reshape(6, 8), chunks=(2, 4))
    y = (x * 2 + 1).astype(dtype)
    with gpusched.disable():
        expected = y.compute(scheduler="sync")
    with dask.config.set({"gpusched.fusion.compile": "wait"}):
        for _ in range(2):
            found = y.compute(scheduler="sync")
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    counts = gpusched.statistics()
    assert counts.recorded.total() == 1
    assert counts.fused_tasks == 12
    assert counts.breaks.total() == 12
