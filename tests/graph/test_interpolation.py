"""xarray's linear interpolation: a kernel per chunk, and what SciPy makes of any coordinates."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.adapters.scipy import weighs_neighbours
from gpusched.graph.functions.lanes import Interpolated, between, interpolated_for

xr = pytest.importorskip("xarray")
pytest.importorskip("scipy")
missing = pytest.importorskip("xarray.core.missing")

OPTIONS: dict[str, Any] = {
    "interp_func": missing.ScipyInterpolator,
    "interp_kwargs": {"method": "linear"},
    "result_coord_core_dims": [("x",)],
}
RANDOM = np.random.default_rng(3)


def field(dtype: str = "f8") -> Any:
    values = RANDOM.normal(size=(30, 20, 40)) * 20
    if dtype[0] == "f":
        values[3, 4, 5:8], values[5, 6, 7], values[6] = np.nan, np.inf, np.nan
    chunks = da.from_array(values.astype(dtype), chunks=(10, 20, 40))
    return xr.DataArray(chunks, dims=("time", "y", "x"), coords={"y": np.arange(20) * 2.0})


def both(build: Any) -> tuple[Any, Any]:
    with gpusched.disable():
        expected = build().compute()
    with gpusched.enable():
        build().compute()
        return expected, build().compute()


PROGRAMS: dict[str, Any] = {
    "inside": lambda x: x.interp(y=np.linspace(0, 38, 77)),
    "beyond": lambda x: x.interp(y=[-3.0, 0.0, 7.1, 38.0, 50.0]),
    "on": lambda x: x.interp(y=x.y),
    "nan": lambda x: x.interp(y=[np.nan, 3.0]),
    "extrapolated": lambda x: x.interp(y=[-3.0, 5.0, 99.0], kwargs={"fill_value": "extrapolate"}),
    "filled": lambda x: x.interp(y=[-3.0, 5.0, 99.0], kwargs={"fill_value": 4.0}),
    "nearest": lambda x: x.interp(y=[1.2, 5.0], method="nearest"),
    "descending": lambda x: x.isel(y=slice(None, None, -1)).interp(y=[30.5, 7.0, 1.0]),
    "integers": lambda x: x.assign_coords(y=np.arange(20)).interp(y=[3, 5, 5]),
    "one": lambda x: x.interp(y=2.5),
    "two": lambda x: x.interp(y=xr.DataArray([[1.0, 2.0], [3.0, 40.0]], dims=("a", "b"))),
    "chain": lambda x: (x.interp(y=np.linspace(0, 38, 77)) * 2 - 1).mean("time"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_scipy(name: str) -> None:
    x = field()
    with np.errstate(all="ignore"):
        expected, found = both(lambda: PROGRAMS[name](x))
    xr.testing.assert_allclose(found, expected, rtol=1e-14)
    assert found.dtype == expected.dtype


def test_one_lane_is_numpys() -> None:
    """SciPy calls `numpy.interp` for it, which gives numbers beside NaN."""
    values = np.array([1.0, np.nan, 3.0, 7.0, np.inf])
    x = xr.DataArray(da.from_array(values, chunks=5), dims="y", coords={"y": np.arange(5) * 0.37})
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        expected, found = both(lambda: x.interp(y=[0.0, 0.74, 1.0]) * 2)
    np.testing.assert_array_equal(found.data, expected.data)
    assert np.isfinite(expected.data).all()


@pytest.mark.parametrize("points", [[1.0, 4.0], [0, 200]])
def test_coordinates_of_few_bits(points: Any) -> None:
    x = field("f4").assign_coords(y=np.arange(20, dtype="u1") * 2 + 1)
    new = np.array(points, "u1")
    expected, found = both(lambda: x.interp(y=new, kwargs={"fill_value": "extrapolate"}))
    xr.testing.assert_allclose(found, expected, rtol=1e-14)
    assert found.dtype == expected.dtype


DAYS = np.datetime64("2001-01-01", "us") + np.arange(30) * np.timedelta64(6, "h")
BETWEEN = np.datetime64("2000-12-31", "us") + np.arange(20) * np.timedelta64(11, "h")


@pytest.mark.parametrize("unit", ["us", "ns", "s"])
@pytest.mark.parametrize("extrapolates", [False, True])
def test_dates(unit: str, extrapolates: bool) -> None:
    """Coordinates that no kernel takes are read by what finds neighbours only."""
    x = field().assign_coords(time=DAYS.astype(f"M8[{unit}]"))
    how = {"fill_value": "extrapolate"} if extrapolates else {}
    with np.errstate(all="ignore"):
        expected, found = both(lambda: x.interp(time=BETWEEN, kwargs=how) * 2)
    np.testing.assert_array_equal(found.data, expected.data)
    assert found.dtype == expected.dtype
    assert not gpusched.explain((x.interp(time=BETWEEN, kwargs=how) * 2).data).breaks


@pytest.mark.parametrize(
    ("days", "points"),
    [
        (DAYS[::-1], BETWEEN),
        (np.r_[DAYS[:-1], np.datetime64("NaT")], BETWEEN),
        (np.r_[DAYS[:1], DAYS[:-1]], BETWEEN),
        (DAYS, np.array(["2001-01-03", "NaT", "2001-01-02"], "M8[us]")),
        (DAYS, BETWEEN[:1]),
        (DAYS, BETWEEN[:0]),
    ],
    ids=["descending", "not a time", "twice", "at no time", "one", "none"],
)
def test_peculiar_dates(days: Any, points: Any) -> None:
    x = field().assign_coords(time=days)

    def outcome() -> Any:
        with np.errstate(all="ignore"):
            try:
                return x.interp(time=points, assume_sorted=True).data.compute()
            except Exception as error:  # noqa: BLE001  compared
                return type(error), str(error)

    with gpusched.disable():
        expected = outcome()
    with gpusched.enable():
        found = outcome(), outcome()
    for each in found:
        if isinstance(expected, tuple):
            assert each == expected
        else:
            np.testing.assert_array_equal(each, expected)


def test_no_plan_depends_on_dates() -> None:
    x = field().assign_coords(time=DAYS)
    with gpusched.enable():
        x.interp(time=BETWEEN).data.compute()
        before = gpusched.statistics().recorded.total()
        later = BETWEEN + np.timedelta64(7, "m")
        found = x.interp(time=later).data.compute()
        assert gpusched.statistics().recorded.total() == before
    np.testing.assert_array_equal(found, x.interp(time=later).data.compute())


def test_values_beyond_may_be_arrays() -> None:
    options = {"method": "linear", "fill_value": np.array([1.0, 2.0])}
    given = partial(missing._interpnd, **{**OPTIONS, "interp_kwargs": options})
    assert interpolated_for(given) is given


@pytest.mark.parametrize("dtype", ["f4", pytest.param("u1", marks=pytest.mark.exhaustive), "c16"])
def test_same_for_other_numbers(dtype: str) -> None:
    x = field(dtype)
    expected, found = both(lambda: x.interp(y=[0.3, 9.0, 60.0]))
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-6)
    assert found.dtype == expected.dtype


def test_one_kernel_for_each_chunk_and_no_copy() -> None:
    x = field()
    plan = gpusched.explain(x.interp(y=np.linspace(0, 38, 77)).data)
    assert not plan.breaks
    (stage,) = [stage for stage in plan.stages if stage.kernels]
    assert len(stage.kernels) == 1


def test_what_is_not_ascending_is_an_error_of_xarrays() -> None:
    def build() -> Any:
        x = field().assign_coords(y=np.r_[np.arange(19.0), 18.0])
        return x.interp(y=[3.5], assume_sorted=True)

    with gpusched.disable(), pytest.raises(Exception) as expected:  # noqa: PT011
        build().compute()
    with gpusched.enable(), pytest.raises(type(expected.value)):
        build().compute()


@given(st.data())
def test_lines_give_what_interp1d_gives(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 9))
    number = st.floats(-1e3, 1e3, width=16)
    x = np.array(sorted(data.draw(st.sets(number, min_size=count, max_size=count))))
    new = np.array(data.draw(st.lists(st.one_of(number, st.sampled_from(list(x))), min_size=1)))
    values = RANDOM.normal(size=(4, count))
    given = partial(missing._interpnd, **OPTIONS)
    first, before, behind, outside = between(x, new)
    low, high = values[..., :-1][..., first], values[..., 1:][..., first]
    if weighs_neighbours():
        inside = before * high + behind * low
    else:
        inside = (high - low) / behind * before + low
    found = np.where(outside, np.nan, inside)
    np.testing.assert_array_equal(found, given(values, x, new))


def test_what_somebody_else_has_put_there_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = interpolated_for(partial(missing._interpnd, **OPTIONS))
    assert type(known) is Interpolated
    assert pickle.loads(pickle.dumps(known)) == known

    def other(*args: Any, **options: Any) -> Any:
        return args[0]

    monkeypatch.setattr(missing, "_interpnd", other)
    function = partial(other, **OPTIONS)
    assert interpolated_for(function) is function
