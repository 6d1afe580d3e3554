"""xarray's group-by with flox: a kernel per chunk, and flox's own results."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import toolz  # type: ignore[import-untyped]

import gpusched
from gpusched.graph.functions.grouped import Grouped, grouped_for, keeps_groups
from tests.tiers import exhaustive

xr = pytest.importorskip("xarray")
flox = pytest.importorskip("flox", reason="pip install flox")

DAYS = 400


def field(dtype: str = "float64", missing: bool = True) -> Any:
    """Return numbers by day and place, some of them missing, in chunks of a hundred days."""
    values = np.random.default_rng(0).normal(size=(DAYS, 30, 40)) * 8
    if missing:
        values[::7, 3:9] = np.nan
        values[:200, 0, 0] = np.nan
        values[:, 1, 1] = np.nan
    days = np.datetime64("2001-01-01") + np.arange(DAYS)
    chunks = da.from_array(values.astype(dtype), chunks=(100, 30, 40))
    return xr.DataArray(chunks, dims=("time", "y", "x"), coords={"time": days})


def computed(build: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """Return a result of plain dask, that with fusion, and what the fused run counted."""
    with xr.set_options(use_numbagg=False):
        expected = build().compute()
        with gpusched.enable():
            build().compute()
            before = gpusched.statistics()
            found = build().compute()
            after = gpusched.statistics()
    return expected, found, after.fused_tasks - before.fused_tasks


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda g: g.mean(method="map-reduce"),
    "mean-with-nan": lambda g: g.mean(skipna=False, method="map-reduce"),
    "sum": lambda g: g.sum(method="map-reduce"),
    "max": lambda g: g.max(method="map-reduce"),
    "min-with-nan": lambda g: g.min(skipna=False, method="map-reduce"),
    "count": lambda g: g.count(method="map-reduce"),
    "prod": lambda g: g.prod(method="map-reduce"),
    "std": lambda g: g.std(method="map-reduce"),
    "var-with-nan": lambda g: g.var(skipna=False, ddof=1, method="map-reduce"),
}


MORE = [
    pytest.param(name, marks=pytest.mark.exhaustive)
    for name in REDUCTIONS
    if name not in ("sum", "std")
]


@pytest.mark.parametrize("name", ["sum", "std", *MORE])
def test_reductions_by_month_are_a_kernel_per_chunk(name: str) -> None:
    data = field()
    expected, found, fused = computed(lambda: REDUCTIONS[name](data.groupby("time.month")))
    assert fused >= 4
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int16", *exhaustive("float32", "bool")])
def test_dtypes_are_those_of_flox(dtype: str) -> None:
    data = field(dtype, missing=False)
    expected, found, fused = computed(lambda: data.groupby("time.season").sum())
    assert fused >= 4
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_days_without_a_group_are_left_out() -> None:
    data = field()
    group = xr.DataArray(np.where(np.arange(DAYS) % 3, np.arange(DAYS) % 5, np.nan), dims="time")
    data = data.assign_coords(group=group)
    expected, found, _ = computed(lambda: data.groupby("group").mean())
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["first", "cohorts"])
def test_what_has_no_kernel_is_flox_s(name: str) -> None:
    data = field().chunk(time=-1) if name == "first" else field()
    groups = data.groupby("time.month")
    expected, found, fused = computed(
        lambda: groups.first(skipna=False) if name == "first" else groups.std(method="cohorts")
    )
    assert fused == 0
    np.testing.assert_allclose(found, expected, rtol=1e-12)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "mean": lambda g: g.mean(),
    "mean-with-nan": lambda g: g.mean(skipna=False),
    "sum": lambda g: g.sum(),
    "sum-of-three": lambda g: g.sum(min_count=3),
    "sum-with-nan": lambda g: g.sum(skipna=False),
    "max": lambda g: g.max(),
    "min": lambda g: g.min(),
    "min-with-nan": lambda g: g.min(skipna=False),
    "count": lambda g: g.count(),
    "prod": lambda g: g.prod(),
    "prod-of-three": lambda g: g.prod(min_count=3),
    "std": lambda g: g.std(),
    "var-with-nan": lambda g: g.var(skipna=False, ddof=1),
    "var-of-few": lambda g: g.var(ddof=5),
    "median": lambda g: g.median(),
    "quantile": lambda g: g.quantile(0.9),
    "quantiles-with-nan": lambda g: g.quantile([0.1, 0.5, 1], skipna=False),
}
"""Of groups that end in one chunk: of some nothing is there, and of some too little."""


def in_one_chunk(dtype: str = "float64", in_order: bool = True) -> Any:
    data = field(dtype, missing=dtype.startswith("f")).isel(x=slice(None, 10)).chunk(time=-1, y=15)
    # flox has another way of computing for labels that are not in order.
    labels = np.arange(DAYS) // 7 if in_order else np.arange(DAYS) * 5 % 57
    return data.assign_coords(week=("time", labels)).groupby("week")


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", ["mean", *exhaustive(*(n for n in WHOLE if n != "mean"))])
def test_groups_that_end_in_a_chunk_are_its_kernels(name: str, in_order: bool) -> None:
    groups = in_one_chunk(in_order=in_order)
    expected, found, fused = computed(lambda: WHOLE[name](groups))
    assert fused == 2
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.week, expected.week)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "bool"])
def test_dtypes_of_groups_that_end_in_a_chunk(dtype: str, name: str) -> None:
    groups = in_one_chunk(dtype)
    with np.errstate(all="ignore"):
        expected, found, fused = computed(lambda: WHOLE[name](groups))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    of_floats = name.endswith("of-three") or name.startswith(("median", "quantile"))
    assert fused == 2 or (of_floats and dtype != "float32")


def test_half_precision_is_refused_by_numbagg_with_kernels_too() -> None:
    """It was an error until the kernels were ready, and none from then on."""
    pytest.importorskip("numbagg")

    def computed(engine: str) -> Any:
        halves = da.from_array(np.arange(12000) % 7, chunks=6000).astype("f2") / 2
        labels = np.tile([0, 1, 2], 4000)
        options = {"engine": engine, "method": "map-reduce", "expected_groups": np.arange(3)}
        return flox.groupby_reduce(halves, labels, func="nanmax", **options)[0].compute()

    with gpusched.enable():
        np.testing.assert_array_equal(computed("flox"), np.full(3, 3, "f2"))
    for switch in (gpusched.disable, gpusched.enable):
        with switch(), pytest.raises(NotImplementedError, match="float16"):
            computed("numbagg")


def test_means_of_large_integers_are_refused_as_by_flox() -> None:
    """Its engines raise an error where float64 may not hold the sum exactly."""
    chunks = da.from_array(np.full((400, 40), 2**60), chunks=(400, 20))
    data = xr.DataArray(chunks, dims=("time", "x"), coords={"week": ("time", np.arange(400) // 7)})
    mean = data.groupby("week").mean(engine="numpy")
    try:
        expected = mean.compute()
    except OverflowError:
        with pytest.raises(OverflowError, match="exact mean"), gpusched.enable():
            mean.compute()
    else:
        with gpusched.enable():
            np.testing.assert_array_equal(mean.compute(), expected)


@pytest.mark.slow
def test_months_of_a_resampling_are_kernels() -> None:
    data = field().isel(x=slice(None, 20))
    expected, found, fused = computed(lambda: data.resample(time="MS").mean() * 2)
    assert fused >= 4
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    with gpusched.enable():
        found = gpusched.explain(data.resample(time="MS").mean())
    assert found.totals.launches >= 8
    assert not any("_reduce_blockwise" in str(each) for each in found.breaks)


@pytest.mark.parametrize("places", [(10, 12), exhaustive((5, 12))[0]])
@pytest.mark.parametrize("name", ["mean", "any", *exhaustive("std", "max", "all")])
def test_labels_of_two_axes(name: str, places: Any) -> None:
    """As those of zones of a map are."""
    data = field().isel(x=slice(None, 12), y=slice(None, 10), time=slice(None, 200))
    data = data.chunk(time=100, y=places[0], x=places[1])
    numbers = np.random.default_rng(1).integers(0, 5, (10, 12))
    zones = xr.DataArray(numbers, dims=("y", "x"), name="zone")

    def build() -> Any:
        if name in ("any", "all"):
            chosen = data > 8 if name == "any" else data > -30
            return getattr(chosen.groupby(zones), name)()
        return getattr(data.groupby(zones), name)()

    expected, found, fused = computed(build)
    assert found.dtype == expected.dtype and found.shape == expected.shape == (200, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert fused >= 2


def test_labels_that_are_not_along_the_last_axes_are_flox_s() -> None:
    data = field().isel(x=slice(None, 10)).chunk(time=-1)
    places = xr.DataArray(np.arange(DAYS * 30).reshape(DAYS, 30) % 7, dims=("time", "y"))
    groups = data.assign_coords(place=places).groupby("place")
    expected, found, _ = computed(lambda: groups.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    other = in_one_chunk("complex64")
    expected, found, fused = computed(lambda: other.sum())
    assert fused == 0
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["std", *exhaustive("max", "sum")])
def test_groups_of_complex_numbers_are_flox_s(name: str) -> None:
    data = field(missing=False).isel(x=slice(None, 10))
    groups = (data + 1j * data[::-1].data).groupby("time.month")
    expected, found, _ = computed(lambda: getattr(groups, name)(method="map-reduce"))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["max", *exhaustive("min")])
def test_extremes_of_groups_of_objects_are_flox_s(name: str) -> None:
    """They are filled with an object that is less or larger than any, which has no hash."""
    data = field(missing=False).isel(x=slice(None, 2), y=slice(None, 2)).round().astype(object)
    largest = getattr(data.groupby("time.month"), name)
    expected, found, fused = computed(lambda: largest(method="map-reduce", engine="flox"))
    assert fused == 0
    assert found.dtype == expected.dtype == object
    np.testing.assert_array_equal(found, expected)


def test_programs_of_groups_last_from_graph_to_graph() -> None:
    groups = in_one_chunk()
    with xr.set_options(use_numbagg=False), gpusched.enable():
        groups.mean().compute()
        gpusched.reset_statistics()
        groups.mean().compute()
        assert not gpusched.statistics().recorded


def flox_function(funcs: tuple[Any, ...], fills: Any, dtypes: Any, axis: tuple[int, ...],
                  count: int) -> Any:  # fmt: skip
    """Return what flox gives to dask for some reductions of groups `range(count)`."""
    flox_core, flox_dask = pytest.importorskip("flox.core"), pytest.importorskip("flox.dask")
    reduction = partial(flox_core.chunk_reduce, func=funcs, reindex=True, fill_value=fills,
                        dtype=dtypes, user_dtype=None)  # fmt: skip
    return partial(toolz.compose(flox_dask._expand_dims, reduction), axis=axis,
                   expected_groups=pd.RangeIndex(count), engine="flox", sort=True)  # fmt: skip


def test_what_flox_gives_to_dask_is_known() -> None:
    given = flox_function(("nansum", "nanlen"), (0, 0), (np.dtype("f4"), np.int64), (2,), 5)
    found = grouped_for(given)
    assert found == Grouped(("nansum", "nanlen"), (0, 0), (np.dtype("f4"), np.int64), (2,), "flox",
                            True, 5, None)  # fmt: skip
    moments = partial(pytest.importorskip("flox.aggregations").var_chunk, skipna=True)
    variances = flox_function((moments, "nanlen"), ((0, 0, 0), 0), (np.dtype("f8"), np.int64),
                              (2,), 5)  # fmt: skip
    assert grouped_for(variances).reductions == ("nanvar", "nanlen")
    assert grouped_for(partial(given, engine="numpy")) != found
    custom = partial(given.func, axis=(2,), engine="flox", sort=True, expected_groups=None)
    assert grouped_for(custom) is custom


def test_another_process_gets_the_same_function() -> None:
    found = grouped_for(flox_function(("sum",), (0,), (np.dtype("f8"),), (1,), 3))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert hash(again) == hash(found)
    given = np.arange(8.0).reshape(2, 4), np.array([0, 2, 0, 2])
    (sums,) = again(*given)["intermediates"]
    assert sums.ravel().tolist() == [2, 0, 4, 10, 0, 12]


@pytest.mark.parametrize("engine", ["flox", "numpy"])
def test_medians_of_groups_are_those_of_flox_s_engine(engine: str) -> None:
    groups = field("float32", missing=False).chunk(time=-1).groupby("time.month")
    expected, found, fused = computed(lambda: groups.median(engine=engine))
    assert bool(fused) == (engine == "flox")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize("engine", ["flox", "numpy"])
def test_zeros_have_the_signs_of_flox_s_engine(engine: str, name: str) -> None:
    groups = (-0.0 * in_one_chunk()._obj.fillna(1)).groupby("week")
    expected, found, fused = computed(lambda: getattr(groups, name)(engine=engine))
    assert fused == 2
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e300, 5e-324, 1.0, 1.0, 2.5, 7.0]


def outcome(call: Callable[[], Any]) -> tuple[list[str], Any]:
    """Return the warnings of a call, each once, and its result or its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = call()
        except Exception as error:  # noqa: BLE001  compared with flox's
            found = np.array(repr(error))
    return sorted({str(each.message) for each in caught}), found


@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("seed", [0, *exhaustive(*range(1, 60))])
def test_quantiles_of_groups_are_flox_s_to_the_bit(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 60)), *random.integers(1, 5, 2).tolist())
    values = random.normal(size=shape) * 10.0 ** random.integers(-3, 4)
    special = random.random(shape) < random.choice([0, 0.1, 0.7])
    values[special] = random.choice(VALUES[: random.choice([1, len(VALUES)])], special.sum())
    with np.errstate(over="ignore"):
        values = values.astype(random.choice(["f4", "f8"]))
    labels = random.integers(0, random.choice([1, 3, 40]), shape[0]) - 3
    labels = np.sort(labels) if random.random() < 0.5 else labels
    chunks = da.from_array(np.asarray(values, order=random.choice(["C", "F"])), chunks=(-1, 2, -1))
    data = xr.DataArray(chunks, dims=("t", "y", "x")).assign_coords(label=("t", labels))
    q = random.choice([0.0, 0.1, 0.5, 0.9, 1.0], random.integers(1, 4))
    options: Any = {"skipna": bool(random.integers(2))}
    kind = random.integers(3)

    def build() -> Any:
        groups = data.groupby("label")
        if kind == 0:
            return groups.median(**options)
        return groups.quantile(q if kind == 1 else q[0], **options)

    with gpusched.disable():
        warned, expected = outcome(lambda: build().compute(scheduler="sync"))
    reported, found = outcome(lambda: build().compute(scheduler="sync"))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert reported == warned


def numbers_near_the_end(random: np.random.Generator) -> np.ndarray:
    """Return numbers with some that are infinite, or have squares or sums that are.

    These are powers of two: whatever the order in which sums are taken, they are the same.
    """
    shape = (int(random.integers(1, 40)), *random.integers(1, 5, 2).tolist())
    dtype = random.choice(["f4", "f8", "f8", "i4"])
    values = random.normal(size=shape) * 10.0 ** random.integers(-3, 4)
    ends = (2.0**100, 2.0**70) if dtype == "f4" else (2.0**1000, 2.0**600)
    few = random.choice([np.nan, np.inf, -np.inf, *ends, -ends[0], ends[0] / 4], 3)
    if dtype != "i4":
        values[random.random(shape) < random.choice([0, 0.05, 0.3, 0.9])] = few[0]
        values[random.random(shape) < random.choice([0, 0.05, 0.3])] = few[1]
        values[:, random.random(shape[1:]) < 0.3] = few[2]
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@pytest.mark.usefixtures("everything_fused")
@pytest.mark.parametrize("flox", [False, True])
@pytest.mark.parametrize("seed", [20, *exhaustive(17, 46, *range(72, 132))])
def test_variances_of_what_is_not_finite_are_plain_dask_s(seed: int, flox: bool) -> None:
    random = np.random.default_rng(seed)
    values = numbers_near_the_end(random)
    length = int(random.choice([-1, 3, 7, 15]))
    labels = random.integers(0, random.choice([1, 3, 10]), len(values))
    labels = np.sort(labels) if random.random() < 0.5 else labels
    chunks = da.from_array(values, chunks=(length, 2, -1)) * int(random.integers(1, 3))
    data = xr.DataArray(chunks, dims=("t", "y", "x")).assign_coords(label=("t", labels))
    name, ddof = str(random.choice(["std", "var"])), int(random.integers(0, 4))
    options: Any = {"skipna": bool(random.integers(2)), "ddof": ddof}
    if flox:
        options["method"] = "blockwise" if length < 0 and random.random() < 0.7 else "map-reduce"
    state: Any = random.choice([{}, {"over": "ignore"}, {"all": "ignore"}])

    def compute() -> Any:
        use = {"use_flox": flox, "use_numbagg": False, "use_bottleneck": False}
        with xr.set_options(**use), np.errstate(**state):
            return getattr(data.groupby("label"), name)(**options).compute(scheduler="sync").data

    with gpusched.disable():
        warned, expected = outcome(compute)
    reported, found = outcome(compute)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind == "f":
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(found[~finite], expected[~finite])
        rtol = 1e-3 if values.dtype == np.float32 else 1e-7
        np.testing.assert_allclose(found[finite], expected[finite], rtol=rtol)
    else:
        assert str(found) == str(expected)
    assert reported == warned


def joining(name: str, dtype: str, aggregate: bool, **options: Any) -> partial[Any]:
    """Return flox's function that joins the results of chunks, with what it is given by flox."""
    groups = field("f8").astype(dtype).chunk(time=40).groupby("time.month")
    with xr.set_options(use_numbagg=False):
        found = getattr(groups, name)(method="map-reduce", **options)
    functions = {node[0] for node in dict(found.data.__dask_graph__()).values()
                 if type(node) is tuple}  # fmt: skip
    wanted = "_aggregate" if aggregate else "_simple_combine"
    (given,) = (f for f in functions if isinstance(f, partial) and f.func.__name__ == wanted)
    return given


def check_joined(given: partial[Any], pairs: list[dict[str, Any]]) -> None:
    joins = grouped_for(given)
    assert joins.args == (given,)
    warned, expected = outcome(lambda: given(copy.deepcopy(pairs)))
    reported, found = outcome(lambda: joins(copy.deepcopy(pairs)))
    assert reported == warned
    for one, other in zip(arrays_of(found), arrays_of(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("seed", [0, 14, *exhaustive(*range(1, 14), *range(15, 60))])
def test_variances_of_chunks_are_joined_to_flox_s_bits(seed: int, aggregate: bool) -> None:
    from flox.multiarray import MultiArray

    random = np.random.default_rng(seed)
    dtype = random.choice(["f4", "f8"])
    given = joining(str(random.choice(["std", "var"])), dtype, aggregate)
    few = [*VALUES, 1e30] if random.random() < 0.3 else [1.0, np.inf][: random.integers(1, 3)]
    order = random.choice(["C", "F"])
    shape = tuple(random.integers(1, 5, 3).tolist())
    shape = (*shape[:-1], 1, shape[-1])

    def chunk() -> dict[str, Any]:
        """Return results of a chunk: groups without a number have neither total nor squares."""
        number = random.integers(0, 3, shape) * random.integers(0, 1000)
        parts = [np.where(number == 0, 0, random.normal(size=shape) * random.choice(few, shape))
                 for _ in range(2)]  # fmt: skip
        several = MultiArray([part.astype(dtype, order=order)
                              for part in (abs(parts[0]), parts[1], number)])  # fmt: skip
        counted = [number.astype(np.int64)] * (len(given.keywords["agg"].simple_combine) - 1)
        labels = np.broadcast_to(np.arange(shape[-1]), (1, shape[-1]))
        return {"groups": labels, "intermediates": (several, *counted)}

    with np.errstate(all="ignore"):
        pairs = [chunk() for _ in range(random.integers(1, 17))]
    check_joined(given, pairs)


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all", "count"])
@pytest.mark.parametrize("seed", [0, 1, *exhaustive(*range(2, 30))])
def test_results_of_chunks_are_joined_to_flox_s_bits(seed: int, name: str, aggregate: bool) -> None:
    random = np.random.default_rng(seed)
    options = {} if name in ("any", "all", "count") else {"skipna": bool(random.integers(2))}
    dtype = "?" if name in ("any", "all") else str(random.choice(["f4", "f8", "i4", "i8", "u1"]))
    given = joining(name, dtype, aggregate, **options)
    few = [*VALUES, 1e300] if random.random() < 0.5 else [1.0, np.inf, 1e-200]
    order = random.choice(["C", "F"])
    shape = tuple(random.integers(1, 5, 3).tolist())
    shape = (*shape[:-1], 1, shape[-1])
    labels = np.broadcast_to(np.arange(shape[-1]), (1, shape[-1]))

    def result(dtype: Any) -> np.ndarray:
        values = random.normal(size=shape) * random.choice(few, shape)
        if np.dtype(dtype).kind != "f":
            values = random.integers(0, 100, shape)
        return values.astype(dtype, order=order)

    dtypes = given.keywords["agg"].dtype["intermediate"]
    with np.errstate(all="ignore"):
        pairs = [{"groups": labels, "intermediates": tuple(map(result, dtypes))}
                 for _ in range(random.integers(1, 17))]  # fmt: skip
    check_joined(given, pairs)


FUNCTIONS = ["sum", "nansum", "prod", "nanprod", "mean", "nanmean", "max", "nanmax", "min",
             "nanmin", "any", "all", "count", "var", "nanvar", "std", "nanstd"]  # fmt: skip


def any_groups(draw: Random, engines: tuple[str, ...]) -> Any:
    """Return reductions of groups by flox: with any function, dtype, labels and chunks."""
    shape = draw.choice([1, 3]), draw.choice([4, 6, 9])
    values = np.array([draw.randint(-3, 4) for _ in range(np.prod(shape))]).reshape(shape)
    dtype = draw.choice(["f8", "f4", "i8", "u1", "?"])
    given = (values / 2 if dtype[0] == "f" else abs(values)).astype(dtype)
    if dtype[0] == "f":
        given[values < draw.choice([-9, -2, 1])] = draw.choice([np.nan, np.nan, np.inf])
    labels = np.array([draw.randrange(draw.choice([1, 2, 4])) for _ in range(shape[1])], float)
    labels[values[0] == 4] = draw.choice([np.nan, 1])
    options: dict[str, Any] = {"func": draw.choice(FUNCTIONS)}
    options["engine"] = draw.choice(engines)
    options["method"] = draw.choice([None, "map-reduce", "blockwise", "cohorts"])
    options["fill_value"] = draw.choice([None, None, 0, np.nan, 7.5])
    options["min_count"] = draw.choice([None, None, 1, 2])
    options["expected_groups"] = draw.choice([None, None, np.array([0, 1, 2]), np.array([0, 9])])
    options["dtype"] = draw.choice([None, None, None, "f8", "i8"])
    chunks = da.from_array(given, chunks=(1, draw.choice([2, 3, shape[1]])))
    return flox.groupby_reduce(chunks, labels, **options)[0]


@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize(
    "engines", [("flox", "numpy"), *exhaustive(("numbagg",), ("flox", "numpy", "numbagg"))]
)
@pytest.mark.parametrize("seed", [0, *exhaustive(*range(1, 20))])
def test_any_groups_are_those_of_flox(seed: int, engines: tuple[str, ...]) -> None:
    if "numbagg" in engines:
        pytest.importorskip("numbagg", reason="pip install numbagg")
    draw, found = Random(seed), Counter[type]()
    while found.total() < 30:
        try:
            program = any_groups(draw, engines)
        except Exception:  # noqa: BLE001, S112  of several kinds
            continue  # flox has no such reduction.
        outcomes = []
        for switch in (gpusched.disable, gpusched.enable):
            with switch(), warnings.catch_warnings(action="ignore"):
                try:
                    outcomes.append(program.compute(scheduler="sync"))
                except Exception as error:  # noqa: BLE001  which is compared
                    outcomes.append(type(error))
        expected, other = outcomes
        found[type(expected)] += 1
        assert type(other) is type(expected)
        if isinstance(expected, np.ndarray):
            assert other.dtype == expected.dtype
            np.testing.assert_allclose(other, expected, 1e-5, 1e-6)
    assert found[np.ndarray] > 15


def arrays_of(found: Any) -> list[Any]:
    """Return the arrays in a dictionary of flox's, or in its error."""
    if isinstance(found, dict):
        return [array for each in found.values() for array in arrays_of(each)]
    if isinstance(found, list | tuple):
        return [array for each in found for array in arrays_of(each)]
    return list(getattr(found, "arrays", [found]))


def test_groups_are_as_long_as_flox_has_counted_unless_functions_are_somebody_s() -> None:
    aggregations = pytest.importorskip("flox.aggregations")
    core = pytest.importorskip("flox.core")

    def own(groups: Any, array: Any, **options: Any) -> Any:
        return array[..., :1]

    built_in = aggregations._initialize_aggregation("nanmean", None, np.dtype("f8"), None, 0, {})
    assert keeps_groups(partial(core._reduce_blockwise, agg=built_in))
    mine = aggregations.Aggregation("mine", numpy=(own,), chunk=(own,), combine=("sum",))
    assert not keeps_groups(partial(core._reduce_blockwise, agg=mine))
    assert keeps_groups(partial(core.chunk_reduce, func=("nansum", "nanlen")))
    assert not keeps_groups(partial(core.chunk_reduce, func=("nansum", own)))
    assert not any(map(keeps_groups, (np.unique, np.matrix, partial(np.unique, axis=0))))
