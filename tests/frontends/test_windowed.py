"""dask-array's reductions of sliding windows: kernels that give what its loops give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pytest

import gpusched
from gpusched.graph.frontends import adapter
from gpusched.graph.frontends.daskarray import REDUCERS, window_reduced
from tests.record.recording import assert_same, record

MOVED = "has changed upstream: see gpusched/graph/frontends/daskarray.py"


@pytest.fixture(autouse=True)
def package() -> Iterator[None]:
    pytest.importorskip("dask_array")
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        yield


def numbers(dtype: str) -> np.ndarray:
    random = np.random.default_rng(0)
    found = (random.normal(size=(60, 7)) * 20).astype(dtype)
    if found.dtype.kind == "f":
        found[5:9, 3], found[10:25, 5], found[30, 2] = np.nan, np.nan, np.inf
    return found


def reductions() -> dict[str, Any]:
    return {each.sliding_window_reducer: each for each in adapter.window_reductions()[1]}


def test_the_code_is_what_was_read() -> None:
    assert reductions().keys() == REDUCERS.keys(), MOVED


@pytest.mark.parametrize("name", REDUCERS)
def test_results_are_dask_array_s(name: str) -> None:
    result = {"mean": "f8", "nanmean": "f8", "var": "f8", "nanvar": "f8", "any": "?", "all": "?"}
    for dtype in ("f8", "f4", "i4", "u1", "?", "f2"):
        x = numbers(dtype)
        if "prod" in name and dtype[0] == "f":
            x = np.where(np.isfinite(x), np.sign(x), x)  # Others overflow in another order.
        sums = np.sum(x[:1], axis=0).dtype.str if "sum" in name or "prod" in name else dtype
        out = (
            dtype if dtype[0] == "f" and name.endswith(("mean", "var")) else result.get(name, sums)
        )
        options = {"reduction_cls": reductions()[name], "ddof": 0, "keepdims": dtype == "f4",
                   "implicit_complex_dtype": False, "out_dtype": np.dtype(out),
                   "reduced_axis": 2}  # fmt: skip
        for axis, window in ((0, 7), (1, 3), (0, 1), (0, 60)):

            def reduced(x: Any, given: Any = (window, axis), options: Any = options) -> Any:
                return window_reduced(x, window=given[0], sliding_axis=given[1], **options)

            with np.errstate(all="ignore"):
                expected, found = reduced(x), record(reduced, x, backend="python")
            largest = float(np.nanmax(np.abs(expected[np.isfinite(expected)]), initial=1.0))
            rounds = 60 if dtype == "f2" else 16
            assert_same(
                found.result, expected, rounds if name not in ("min", "max") else 0, largest
            )
            plain = name.endswith("var") and (dtype == "f2" or (name == "var" and window == 1))
            plain |= name == "nanvar" and window == 1 and dtype[0] != "f"
            assert bool(found.recorder.breaks) is plain


def test_what_is_not_known_is_dask_array_s() -> None:
    import dask_array

    block = dask_array.from_array(np.ones((20, 3)) + 1j, chunks=(20, 3))
    program = dask_array.sliding_window_view(block + 1, 4, axis=0).sum(axis=-1)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable():
        np.testing.assert_allclose(program.compute(scheduler="sync"), expected)


def test_windows_are_one_kernel_of_each_chunk() -> None:
    import dask_array

    x = dask_array.from_array(np.random.default_rng(0).normal(size=(120, 5)), chunks=(60, 5))
    program = dask_array.sliding_window_view(x * 2, 8, axis=0).max(axis=-1)
    explanation = gpusched.explain(program)
    assert any("maximum" in each.name for each in explanation.kernels)
    assert {each.code for each in explanation.breaks} <= {"ALONE"}
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "off"}):
        np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
