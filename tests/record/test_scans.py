"""Scans: one kernel, NumPy's bits, and real arrays for what is not one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.reductions import prefixscan_blelloch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpusched
from gpusched.backends.devices import HOST
from gpusched.breaks import GraphBreak
from gpusched.plan.tiles import TiledLaunches
from gpusched.record import scans
from tests.record.recording import BACKENDS, check, record
from tests.tiers import every

RANDOM = np.random.default_rng(7)
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, 1.5, -2.5]


def special(*shape: int, dtype: Any = "f8") -> np.ndarray:
    """Return numbers of which some are NaN, infinite, negative zeros, or overflow when added."""
    numbers = RANDOM.normal(size=shape) * 8
    chosen = RANDOM.random(shape) < 0.1
    with np.errstate(over="ignore"):
        return np.where(chosen, RANDOM.choice(SPECIAL, shape), numbers).astype(dtype)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_adds_up_what_it_computes(backend: str, order: Any, axis: int) -> None:
    array = np.array(special(5, 7, 1100 if axis == 2 and backend == "cpu" else 6), order=order)
    found = check(lambda a: np.cumsum(a * 2 - 1, axis=axis), array, backend=backend, errors="warn")
    assert len(found.launches) == 1
    assert found.launches[0].kernel.kernel.loops.count("scan") == 1


FUNCTIONS = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "nancumsum": np.nancumsum,
    "nancumprod": np.nancumprod,
    "maximum": np.maximum.accumulate,
    "fmin": np.fmin.accumulate,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    st.sampled_from(["f2", "f4", "f8", "i1", "u2", "i8", "u8", "?"]).flatmap(
        lambda c: hnp.arrays(c, hnp.array_shapes(max_dims=3, max_side=4))
    ),
    st.data(),
)
def test_bits_are_numpy_s(name: str, array: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, array.ndim - 1))
    view = data.draw(st.sampled_from([array, array[..., ::-1], array.T]))
    check(lambda a: FUNCTIONS[name](a, axis=axis), view, backend="python")


@pytest.mark.parametrize("dtype", every(1, ["f8", "f2", "f4", "i4", "c8"]))
@pytest.mark.parametrize("axis", [0, 1])
def test_machine_code_has_numpy_s_bits(axis: int, dtype: str) -> None:
    array = special(40, 600, dtype=dtype) if dtype[0] == "f" else special(40, 600).view("i8")
    if dtype[0] == "c":
        array = special(40, 1200, dtype="f4").view("c8")
    check(lambda a: (np.cumsum(a, axis), np.add.accumulate(a[:, ::-1], axis)), array)


def test_more_columns_than_are_joined_at_once() -> None:
    check(lambda a: a.cumsum(0), special(3, 9000))
    check(lambda a: a.cumsum(1), special(3, 5, 2, 3)[:, :, ::-1, 1:])


def test_dtypes_are_numpy_s() -> None:
    for dtype in ("?", "i1", "u4", "f2", "f4"):
        array = np.ones((2, 3), dtype)
        check(lambda a: (a.cumsum(0), a.cumprod(1)), array, backend="python")
        check(lambda a: np.cumsum(a, axis=1, dtype="f8"), array, backend="python")
    check(lambda a: np.logical_and.accumulate(a, axis=1), np.eye(3) == 1, backend="python")


@pytest.mark.parametrize("name", ["maximum", "fmin"])
def test_few_lanes_are_scanned_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANNED_BLOCK", 4)
    few_lanes = replace(HOST, can=replace(HOST.can, host_memory=False))
    array = special(2, 71)
    for view, axis in ((array, 1), (array.T[::-1], 0)):
        found = record(lambda a, k=axis: FUNCTIONS[name](a + 2, axis=k), view, backend="python",
                       device=few_lanes)  # fmt: skip
        np.testing.assert_array_equal(found.result, FUNCTIONS[name](view + 2, axis=axis))
        assert not found.recorder.breaks


def test_two_scans_along_the_same_axis_are_one_kernel() -> None:
    found = check(lambda a: (np.cumsum(a, axis=0), np.cumprod(a + 1, axis=0)), special(6, 5),
                  backend="python")  # fmt: skip
    assert len(found.launches) == 1
    found = check(lambda a: (np.cumsum(a, 0), np.sum(a, 0)), special(6, 5), backend="python",
                  ulp=4)  # fmt: skip
    assert len(found.launches) == 2


def test_what_follows_runs_on_the_same_rows() -> None:
    array = RANDOM.normal(size=(1200, 1024))
    found = check(lambda a: np.cumsum(a - 0.5, axis=0).max(axis=1), array)
    (step,) = [step for step, _, _ in found.plan.stages]
    assert isinstance(step, TiledLaunches)
    assert [each.kernel.kernel.loops for each in step.launches] == [
        ("scan", "map"),
        ("map", "reduce"),
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.cumsum(a),
        lambda a: np.logical_or.accumulate(a, axis=1),
        lambda a: np.cumprod(a * 1j, axis=0),
        lambda a: np.cumsum(a[:0], axis=0),
        lambda a: np.cumsum(a[0, 0]),
    ],
)
def test_what_is_no_kernel_is_numpy_s(function: Any) -> None:
    array = np.ones((3, 4))
    found = record(function, array, backend="python")
    assert found.recorder.breaks
    np.testing.assert_array_equal(found.result, function(array))


def test_an_axis_of_one_element_needs_no_scan() -> None:
    found = check(lambda a: np.cumsum(a * 2, axis=1), special(4, 1), backend="python")
    assert found.launches[0].kernel.kernel.loops == ("map",)


SMALL = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait"}


def chunked(array: np.ndarray) -> da.Array:
    return da.from_array(array, chunks=(20, 30))


@pytest.mark.parametrize("method", ["sequential", "blelloch"])
@pytest.mark.parametrize("axis", [0, 1])
def test_dask_s_running_totals_are_plain_dask_s(axis: int, method: str) -> None:
    x = chunked(RANDOM.normal(size=(60, 90)))
    y = da.cumsum(x * 2 - 1, axis=axis, method=method)
    expected = y.compute()
    with gpusched.enable(), dask.config.set(SMALL):
        before = gpusched.statistics()
        found = y.compute()
        after = gpusched.statistics()
    assert after.fused_tasks - before.fused_tasks >= 9
    close = {"rtol": 1e-12} if method == "blelloch" else {"rtol": 0}  # Whose sums are kernels.
    np.testing.assert_allclose(found, expected, **close)


def test_functions_that_a_scan_is_given_get_lazy_chunks_only_if_they_are_known() -> None:
    x = chunked(RANDOM.normal(size=(60, 30)))
    seen = []

    def own(a: Any, axis: Any, dtype: Any) -> Any:
        seen.append(type(a))
        return np.cumsum(a, axis=axis, dtype=dtype)

    def build() -> da.Array:
        return prefixscan_blelloch(own, np.sum, lambda a, b: a + b, x * 2, axis=0, dtype="f8")

    expected = build().compute()
    seen.clear()
    with gpusched.enable(), dask.config.set(SMALL):
        np.testing.assert_allclose(build().compute(), expected)
    assert set(seen) == {np.ndarray}


def test_a_masked_chunk_keeps_its_mask() -> None:
    values = np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 7)
    x = da.from_array(values, chunks=(2, 3), asarray=False)
    for method in ("sequential", "blelloch"):
        expected = da.cumsum(x, axis=0, method=method).compute()
        with gpusched.enable(), dask.config.set(SMALL):
            found = da.cumsum(x, axis=0, method=method).compute()
        np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))


def test_a_scan_made_flat_says_why() -> None:
    found = record(lambda a: np.cumsum(a) + 1, np.ones((3, 4)), backend="python")
    ((name, reason),) = found.recorder.breaks
    assert (name, reason.kind) == ("cumsum", GraphBreak.NO_KERNEL)
