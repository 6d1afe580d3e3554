"""xarray's ``ffill``, ``bfill`` and what is made of them: kernels, and plain dask's values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from tests.record.gaps import gaps

xr = pytest.importorskip("xarray")
bn = pytest.importorskip("bottleneck", reason="pip install bottleneck")
LIBRARIES = ["bottleneck", "numbagg"]
SMALL = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait",
         "gpusched.fusion.single-operation-bytes": 1, "scheduler": "sync"}  # fmt: skip


def use(library: str) -> Any:
    """Return a context in which xarray calls a library."""
    pytest.importorskip(library)
    return xr.set_options(use_numbagg=library == "numbagg", use_bottleneck=library == "bottleneck")


def same(build: Callable[[], Any]) -> Any:
    """Assert that fused values are plain dask's, bit by bit; return what was counted."""
    with dask.config.set(scheduler="sync"):
        expected = np.asarray(build().compute())
    with gpusched.enable(), dask.config.set(SMALL):
        before = gpusched.statistics()
        found = np.asarray(build().compute())
        after = gpusched.statistics()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind == "f":
        zero = found == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))
    return {name: count - before.breaks[name] for name, count in after.breaks.items()
            if count != before.breaks[name]}, after.launches - before.launches  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("limit", [None, 1, 10])
@pytest.mark.parametrize("chunks", [(24, 8), (8, 8), (7, 3), (1, 8)])
def test_filling_is_kernels(library: str, limit: int | None, chunks: tuple[int, int]) -> None:
    x = xr.DataArray(da.from_array(gaps(24, 8), chunks=chunks), dims=("time", "x")) * 2 - 1
    for name in ("ffill", "bfill"):
        with use(library):
            breaks, launches = same(lambda f=name: getattr(x, f)("time", limit=limit) + 1)
        assert launches
        assert kinds(breaks) <= {GraphBreak.ALONE}  # of chunks of one element


def kinds(breaks: dict[Any, int]) -> set[Any]:
    return {reason.kind for _, reason in breaks}


def test_a_task_fills_and_computes() -> None:
    x = xr.DataArray(da.from_array(gaps(60, 8), chunks=(15, 8)), dims=("time", "x"))
    for limit in (None, 5):
        build = lambda k=limit: (x.ffill("time", limit=k) - 1).max("time")  # noqa: E731
        with gpusched.enable(), dask.config.set(SMALL):
            explained = gpusched.explain(build().data)
        assert {each.code for each in explained.breaks} <= {"REDUCTION"}
        assert "last_number_scan" in str(explained)
        same(build)


def test_lengths_of_spells() -> None:
    wet = xr.DataArray(da.from_array(gaps(90, 8), chunks=(30, 4)), dims=("time", "x")) > 0.2

    def spells() -> Any:
        total = wet.cumsum("time")
        return total - total.where(~wet).ffill("time").fillna(0)

    breaks, _ = same(spells)
    assert kinds(breaks) <= {GraphBreak.ALONE}


@pytest.mark.parametrize("dtype", ["f2", "f4", "i4", "u1", "?", "c16", ">f8"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_dtypes_are_the_library_s(library: str, dtype: str) -> None:
    values = gaps(30, 4)
    if dtype[0] in "iu?":
        values = np.nan_to_num(values, nan=1, posinf=2).clip(0, 9)
    for chunks in ((30, 4), (10, 4)):
        x = xr.DataArray(da.from_array(values.astype(dtype), chunks=chunks), dims=("time", "x"))
        with use(library):
            outcome(lambda a=x: a.ffill("time"))


def outcome(build: Callable[[], Any]) -> None:
    """Assert that fused values are plain dask's, or the same error is raised."""
    try:
        with dask.config.set(scheduler="sync"):
            build().compute()
    except Exception as error:  # noqa: BLE001
        with gpusched.enable(), dask.config.set(SMALL), pytest.raises(type(error)):
            build().compute()
    else:
        same(build)


def pushed(a: np.ndarray) -> np.ndarray:
    return bn.push(a * 2, 2, 0) - 1


def pushed_by_name(a: np.ndarray) -> np.ndarray:
    return bn.push(a, n=None, axis=-1) * 2


@pytest.mark.parametrize("function", [pushed, pushed_by_name, partial(bn.push, axis=0), bn.push])
def test_functions_of_one_s_own_call_bottleneck(function: Any) -> None:
    x = da.from_array(gaps(40, 8), chunks=(20, 4))
    breaks, launches = same(lambda: (x + 1).map_blocks(function, dtype="f8"))
    assert launches == 4 * (2 if function in (pushed, pushed_by_name) else 1)
    assert not breaks


@pytest.mark.parametrize("name", ["ffill", "bfill"])
def test_functions_of_one_s_own_call_numbagg(name: str) -> None:
    function = getattr(pytest.importorskip("numbagg"), name)
    x = da.from_array(gaps(40, 8), chunks=(20, 4))
    for own in (
        partial(function, axis=0, limit=2),
        lambda a: function(a) * 2,
        lambda a: function(a, limit=1, axis=0) * 2,
    ):
        breaks, launches = same(lambda f=own: (x + 1).map_blocks(f, dtype="f8"))
        assert launches
        assert not breaks


def test_a_limit_that_bottleneck_refuses_is_its_error() -> None:
    x = da.from_array(gaps(40, 8), chunks=(20, 4))
    outcome(lambda: (x + 1).map_blocks(lambda a: bn.push(a, -1, 0), dtype="f8"))
    outcome(lambda: (x + 1).map_blocks(lambda a: bn.push(a, 1, 5), dtype="f8"))


@pytest.mark.parametrize("n", [None, 3])
def test_dask_s_own_push(n: int | None) -> None:
    x = da.from_array(gaps(40, 8), chunks=(10, 4))
    breaks, launches = same(lambda: da.push(x + 1, n, 0) * 2)
    assert launches
    assert kinds(breaks) <= {GraphBreak.ALONE}


def test_masked_chunks_are_bottleneck_s() -> None:
    values = np.ma.masked_invalid(gaps(40, 8))
    x = da.from_array(values, chunks=(10, 4), asarray=False)
    outcome(lambda: da.push(x, None, 0))


def test_what_has_taken_a_function_s_place_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    push = bn.push

    def another(a: np.ndarray, n: int, axis: int) -> np.ndarray:
        seen.append(type(a))
        return push(a, n, axis)

    monkeypatch.setattr(bn, "push", another)
    x = da.from_array(gaps(40, 8), chunks=(10, 4))
    with gpusched.enable(), dask.config.set(SMALL):
        (x + 1).map_blocks(bn.push, n=2, axis=0, dtype="f8", meta=x._meta).compute()
    assert set(seen) == {np.ndarray}


def test_numbers_that_are_handed_on_are_found_in_chunks_that_are_not_joined() -> None:
    nanlast = pytest.importorskip("xarray.core.nputils").nanlast
    values = gaps(8000, 200, share=0.98)
    values[900:3000, ::7] = np.nan

    def build() -> Any:
        x = da.from_array(values, chunks=(1000, 200)).rechunk((4000, 200))
        return x.map_blocks(nanlast, axis=0, keepdims=True, dtype="f8", chunks=((1, 1), (200,)))

    breaks, launches = same(build)
    assert not breaks
    assert launches == 2
    with gpusched.enable(), dask.config.set(SMALL):
        assert "without concatenating" in str(gpusched.explain(build()))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("name", ["ffill", "bfill"])
def test_functions_see_the_layout_that_numbagg_gives(name: str, limit: Any, axis: int) -> None:
    fill = partial(getattr(pytest.importorskip("numbagg"), name), limit=limit, axis=axis)
    seen: list[tuple[int, ...]] = []

    def look(block: np.ndarray) -> np.ndarray:
        seen.append(block.strides)
        return block

    def compute() -> None:
        x = da.from_array(gaps(24, 8), chunks=-1) * 2
        for function in (fill, look):
            x = x.map_blocks(function, dtype=float, meta=np.empty((0, 0)))
        x.compute(scheduler="sync")

    compute()
    with gpusched.enable(), dask.config.set(SMALL):
        compute()
    assert seen[0] == seen[1]
