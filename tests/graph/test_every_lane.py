"""Functions of lanes run once for all: `numpy.apply_along_axis`, `numpy.vectorize`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.record import lanewise
from tests.tiers import every

RNG = np.random.default_rng(5)
ARRAY = RNG.random((12, 6, 8))
GAPS = np.where(RNG.random(ARRAY.shape) < 0.2, np.nan, ARRAY)
GAPS[:, 1, 1] = np.nan
GAPS[:10, 2, 3] = np.nan
TABLE = np.linspace(0, 1, 12)


@pytest.fixture(autouse=True)
def fused(no_plans: None, no_compiler: None) -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        yield


def written(v: Any) -> Any:
    out = np.zeros(len(v))
    out[1:] = v[1:] - v[:-1]
    out[v > 0.5] = 7
    out /= 2
    return out


def smoothed(v: Any) -> Any:
    out = np.empty_like(v)
    out[0] = v[0]
    for i in range(1, len(v)):
        out[i] = 0.3 * v[i] + 0.7 * out[i - 1]
    return out


def slope(v: Any) -> Any:
    x = np.arange(len(v)) - (len(v) - 1) / 2
    return np.sum(x * (v - v.mean())) / np.sum(x**2)


def detrended(v: Any) -> Any:
    x = np.arange(len(v))
    return v - np.polyval(np.polyfit(x, v, 1), x)


def filled_gaps(v: Any) -> Any:
    if np.isnan(v).all():
        return np.nan
    if np.isnan(v).sum() > 9:
        return -1.0
    return np.nanmax(v) - np.nanmin(v) + np.nanargmax(v)


def with_lists(v: Any) -> Any:
    out = np.zeros(3)
    out += [1, 2, 3]
    return out * v[0] + np.where(v[0] > 0.5, [1.0, 2.0, 3.0], (3.0, 4.0, 5.0))


def in_two_axes(v: Any) -> Any:
    pairs = v.reshape(-1, 4)
    return (pairs - pairs.mean(axis=0)).max(axis=1).T * 2


def counting(v: Any) -> Any:
    n = 0
    while v[n] < 0.9 and n < 7:
        n += 1
    return n


def turned(v: Any) -> Any:
    out = v.copy()
    first = out[0]
    for k in range(3):
        out[k], out[-1 - k] = out[-1 - k], out[k]
    return out + first


def mann_kendall(v: Any) -> Any:
    rises = 0
    for k in range(len(v) - 1):
        rises += np.sign(v[k + 1 :] - v[k]).sum()
    if rises > 0:
        return (rises - 1) / 14.6
    if rises < 0:
        return (rises + 1) / 14.6
    return 0.0


def without_branch(v: Any) -> Any:
    z = (v - np.median(v)) / (np.std(v, ddof=1) + 1)
    return np.array([z.min(), z.max(), np.ptp(z)])


ALONG: list[Callable[[Any], Any]] = [
    lambda v: v.mean(),
    lambda v: (v - v.mean()) / v.std(),
    lambda v: v,
    lambda v: v[::2] * 2,
    lambda v: v[[0, 3, -1]] + v[1],
    lambda v: v[[True, False, True] * 4],
    lambda v: v[np.argsort(TABLE)[::-1]] * 2,
    lambda v: np.sort(v)[-3:],
    lambda v: np.percentile(v, [10, 50, 90]),
    lambda v: np.quantile(v, 0.3),
    lambda v: [v.mean(), v.max()],
    lambda v: np.cumsum(v) / np.arange(1, len(v) + 1),
    lambda v: np.dot(v, np.ones(len(v)) / len(v)) + v @ TABLE,
    lambda v: np.lib.stride_tricks.sliding_window_view(v, 5).mean(-1),
    lambda v: np.gradient(v, 2.0),
    lambda v: np.abs(np.diff(v, 2)).sum(),
    lambda v: np.argmax(v > 0.5),
    lambda v: np.diff(np.sign(v - 0.5)).astype(bool).sum(),
    lambda v: np.abs(np.fft.rfft(v))[1:5],
    lambda v: np.convolve(v, TABLE[:5], mode="same"),
    lambda v: np.convolve(v, TABLE[:4]),
    lambda v: np.convolve([1, 2, 1], v, "valid"),
    lambda v: np.convolve(TABLE[:4], v, "valid"),
    lambda v: np.interp(np.linspace(-0.1, 1.1, 7), TABLE, v),
    lambda v: np.interp(v, TABLE, TABLE**2),
    lambda v: np.digitize(v, TABLE[:3]),
    lambda v: np.concatenate([v[:2], np.ones(2), v[-1:]]),
    lambda v: np.hstack([v[:2], v[-2:] * 2]),
    lambda v: np.where(v > 0.5, v, v.max()).astype("f4"),
    lambda v: np.clip(v, v.min() + 0.1, 0.9).round(2),
    lambda v: np.trapezoid(v, TABLE) + np.linalg.norm(v),
    lambda v: np.full(3, 2.0) * v[:3],
    lambda v: v.astype(int) + np.int64(3) if v.ndim == 1 else v,
    lambda v: np.polyfit(TABLE, v, 2),
    lambda v: np.average(v) if isinstance(v, np.ndarray) else None,
    lambda v: np.searchsorted(TABLE, v) // 2,
    lambda v: 1.0 if v[0] > 0.5 else v[1] + 2,
    lambda v: v.max() if (v > 0.9).any() and not (v < 0.05).any() else v.min(),
    counting,
    turned,
    mann_kendall,
    written,
    smoothed,
    slope,
    detrended,
    in_two_axes,
    with_lists,
    lambda v: (v[0] + [1.0, 2.0, 3.0]).sum(),
    lambda v: np.clip(np.maximum(v[0], [0.1, 0.2, 0.3]), [0.0, 0.2, 0.4], 0.5).sum(),
    lambda v: np.select([v[0] > 0.5], [[1.0, 2.0, 3.0]], 0.0).sum(),
    without_branch,
]


CHUNKS = (-1, 3, 8)


def computed(make: Callable[[], Any]) -> tuple[Any, Any, bool]:
    """Return what a graph gives by gpusched and by plain dask, and whether all lanes were one."""
    made = []

    def result_of(*args: Any) -> Any:
        made.append(RESULT_OF(*args))
        return made[-1]

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(lanewise, "result_of", result_of)
        with dask.config.set(scheduler="sync"):
            with gpusched.disable():
                expected = dask.compute(make())[0]
            found = dask.compute(make())[0]
    return found, expected, bool(made)


RESULT_OF = lanewise.result_of


def assert_alike(found: Any, expected: Any, tolerance: float = 1e-11) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def along(function: Callable[[Any], Any], array: Any, axis: int = 0) -> Any:
    one = np.asarray(function(np.moveaxis(array, axis, -1)[0, 0]))
    chunks = [3, 3, 4]
    chunks[axis] = -1
    x = da.from_array(array, chunks=tuple(chunks))
    return da.apply_along_axis(function, axis, x, dtype=one.dtype, shape=one.shape)


@pytest.mark.parametrize("function", ALONG)
def test_along_an_axis(function: Callable[[Any], Any]) -> None:
    found, expected, at_once = computed(lambda: along(function, ARRAY))
    assert_alike(found, expected)
    assert at_once


@pytest.mark.parametrize("axis", [1, 2])
def test_along_other_axes(axis: int) -> None:
    for function in (without_branch, lambda v: v[:3].sum(), lambda v: v - v.max()):
        found, expected, at_once = computed(lambda f=function: along(f, ARRAY, axis))
        assert_alike(found, expected)
        assert at_once


@pytest.mark.parametrize("array", [GAPS, GAPS.astype("f4")])
def test_lanes_go_their_own_ways(array: Any) -> None:
    x = da.from_array(array, chunks=CHUNKS).transpose(1, 2, 0)
    found, expected, at_once = computed(
        lambda: da.apply_gufunc(filled_gaps, "(t)->()", x, vectorize=True, output_dtypes=float)
    )
    assert_alike(found, expected, 1e-6)
    assert at_once


def test_nothing_is_warned_of_for_other_ways() -> None:
    x = da.from_array(GAPS, chunks=CHUNKS).transpose(1, 2, 0)
    made = da.apply_gufunc(filled_gaps, "(t)->()", x, vectorize=True, output_dtypes=float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.compute(scheduler="sync")


def test_polynomials_are_those_of_each_lane() -> None:
    x = ARRAY.copy()
    x[3, 2, 2], x[4, 1, 5], x[:, 0, 0] = np.inf, np.nan, 1e9
    found, expected, at_once = computed(lambda: along(lambda v: np.polyfit(TABLE, v, 2), x))
    assert_alike(found, expected)
    assert at_once


@pytest.mark.parametrize("number", [lambda v: v.sum() * 300, lambda v: len(v[v > 0.1]) * 100])
def test_numbers_that_a_dtype_does_not_have_are_an_error(number: Any) -> None:
    def assigned(v: Any) -> Any:
        out = np.zeros(3, "i1")
        out[0] = number(v)
        return out

    x = da.from_array(ARRAY, chunks=CHUNKS)
    made = da.apply_along_axis(assigned, 0, x, dtype="i1", shape=(3,))
    with pytest.raises(OverflowError):
        made.compute(scheduler="sync")


def steps(x: Any) -> Any:
    if np.isnan(x):
        return -1
    if x > 0.7:
        return 3.0
    if x > 0.3:
        return x * 2
    return np.float32(0)


def heat(t: Any, rh: Any) -> Any:
    if t < 0.2:
        return t
    found = t * 1.1 + rh * 0.5
    if found > 1 and rh > 0.5:
        found -= (rh - 0.5) * 0.3
    return found


def both(v: Any) -> Any:
    return v.mean(), v.std() > 0.3


def covariance(x: Any, y: Any) -> Any:
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum())


def largest(x: Any, y: Any) -> Any:
    return max(x, y) if isinstance(x, float) else 0.0


WITH: list[tuple[Callable[..., Any], str, list[Any], Any]] = [
    (steps, "()->()", [GAPS], [float]),
    (steps, "()->()", [GAPS], ["f4"]),
    (heat, "(),()->()", [ARRAY, ARRAY[::-1]], [float]),
    (heat, "(),()->()", [ARRAY, ARRAY[0]], [float]),
    (both, "(i)->(),()", [ARRAY], [float, bool]),
    (covariance, "(i),(i)->()", [ARRAY, GAPS], [float]),
    (covariance, "(i),(i)->()", [ARRAY, ARRAY[0, 0]], [float]),
    (largest, "(),()->()", [ARRAY, ARRAY[::-1]], [float]),
    (lambda a, b: np.einsum("i,j->ij", a, b), "(i),(j)->(i,j)", [ARRAY, TABLE], [float]),
    (lambda n, k: n // (k + 1) + n % 3, "(),()->()", [ARRAY.astype("i4") + 7] * 2, ["i4"]),
    (lambda v, x, new: np.interp(new, x, v), "(i),(i),(j)->(j)",
     [ARRAY, np.arange(8.0), TABLE * 8], [float]),
    (lambda m: m @ np.ones(8), "(i,j)->(i)", [ARRAY], [float]),
]  # fmt: skip


@pytest.mark.parametrize("case", WITH, ids=range(len(WITH)))
def test_vectorized(case: Any) -> None:
    function, signature, arrays, dtypes = case
    chunked = [da.from_array(a, chunks=(*(3,) * (a.ndim - 1), -1)) for a in arrays]
    given = dtypes if len(dtypes) > 1 else dtypes[0]
    found, expected, at_once = computed(
        lambda: da.apply_gufunc(
            function, signature, *chunked, vectorize=True, output_dtypes=given, allow_rechunk=True
        )
    )
    pairs = zip(found, expected, strict=True) if len(dtypes) > 1 else [(found, expected)]
    for left, right in pairs:
        assert_alike(left, right)
    assert at_once


def unsorted_points(v: Any, x: Any, new: Any) -> Any:
    return np.interp(new, x, v)


def two_answers_for_each(v: Any) -> Any:
    best = run = 0
    for each in v:
        run = run + 1 if each > 0.5 else 0
        best = max(best, run * v[0])
    return best * 1.0


def may_raise(v: Any) -> Any:
    if v[0] > 2:
        raise ValueError("none is")
    return v.sum()


REFUSED: list[Callable[[Any], Any]] = [
    lambda v: np.sort(v[v > 0.1])[0],
    lambda v: np.arange(12)[v > 0.5].sum(),
    lambda v: float(v.max()) * 2,
    lambda v: len(np.flatnonzero(v > 0.5)),
    lambda v: {0.0: 1.0}.get(v[0], 2.0),
    lambda v: np.float32(1) if v[0] > 0.5 else 1.0,
    lambda v: np.nan,
    lambda v: v.std() if v.sum() > 4 else v.min(),  # Sums are rounded in another way.
    lambda v: np.linalg.svd(v.reshape(3, 4))[1],
    lambda v: np.apply_along_axis(np.sum, 0, v.reshape(3, 4)),
    # As many windows, or pairs, for all lanes may be more than memory has.
    lambda v: np.median(np.lib.stride_tricks.sliding_window_view(np.concatenate([v, v]), 9), -1),
    lambda v: np.sort(v[:, None] - v, axis=-1).max(),
    two_answers_for_each,
    may_raise,
]


@pytest.mark.parametrize("function", REFUSED)
def test_others_run_lane_by_lane(function: Callable[[Any], Any]) -> None:
    found, expected, at_once = computed(lambda: along(function, ARRAY))
    assert_alike(found, expected)
    assert not at_once


def test_products_of_lanes_with_several_axes() -> None:
    x = da.from_array(ARRAY[:, :, :6], chunks=(3, -1, -1))
    found, expected, _ = computed(
        lambda: da.apply_gufunc(lambda m: np.vdot(m, m), "(i,j)->()", x, vectorize=True,
                                output_dtypes=float)
    )  # fmt: skip
    assert_alike(found, expected)


def refused_by_numpy(error: type[Exception], function: Any, signature: str, arrays: list[Any],
                     dtype: Any) -> None:  # fmt: skip
    chunked = [da.from_array(a, chunks=(3, 3, -1)) for a in arrays]
    made = da.apply_gufunc(function, signature, *chunked, vectorize=True, output_dtypes=dtype)
    with pytest.raises(error):
        made.compute(scheduler="sync")


def test_what_numpy_refuses() -> None:
    refused_by_numpy(ValueError, lambda v, w: np.dot(v, w), "(i),(j)->()",
                     [ARRAY, ARRAY[..., :1]], float)  # fmt: skip
    refused_by_numpy(OverflowError, lambda v: 300 if v[0] > 0.5 else 2, "(i)->()", [ARRAY], "i1")


@pytest.mark.parametrize("factor", [2, 3.0, np.arange(8.0)])
def test_partial_applications(factor: Any) -> None:
    def scaled(power: int, v: Any, factor: Any) -> Any:
        return ((v * factor).max() if v[0] > 0.5 else v.min()) ** power

    x = da.from_array(ARRAY, chunks=(3, 3, -1))
    function = partial(partial(scaled, 2), factor=factor)
    found, expected, at_once = computed(
        lambda: da.apply_gufunc(function, "(i)->()", x, vectorize=True, output_dtypes=float)
    )
    assert_alike(found, expected)
    assert at_once


def test_what_a_partial_application_holds_does_not_change() -> None:
    def counted(v: Any, counts: Any) -> Any:
        counts[0] += 1
        return v.sum() + counts[0]

    def made() -> Any:
        function = partial(counted, counts=np.zeros(1))
        x = da.from_array(ARRAY, chunks=(3, 3, -1))
        return da.apply_gufunc(function, "(i)->()", x, vectorize=True, output_dtypes=float)

    found, expected, at_once = computed(made)
    assert_alike(found, expected)
    assert not at_once


def test_points_that_are_not_sorted() -> None:
    x = da.from_array(ARRAY, chunks=(3, 3, -1))
    points = [da.from_array(p) for p in (np.arange(8.0)[::-1].copy(), TABLE * 8)]
    found, expected, _ = computed(
        lambda: da.apply_gufunc(
            unsorted_points, "(i),(i),(j)->(j)", x, *points, vectorize=True, output_dtypes=float
        )
    )
    assert_alike(found, expected)


def test_in_a_function_of_chunks() -> None:
    def scaled(block: Any) -> Any:
        block = np.sqrt(block + 1)
        spread = np.apply_along_axis(lambda v: v.max() - v.min(), 0, block)
        return np.apply_along_axis(np.sort, 2, block / spread) * 2

    x = da.from_array(ARRAY, chunks=(-1, 3, 4))
    found, expected, at_once = computed(lambda: x.map_blocks(scaled, dtype=float))
    assert_alike(found, expected)
    assert at_once


def test_options_of_the_function() -> None:
    def scaled(v: Any, factor: Any, power: int = 1) -> Any:
        return (v * factor).max() ** power

    x = da.from_array(ARRAY, chunks=CHUNKS)
    found, expected, at_once = computed(
        lambda: da.apply_along_axis(scaled, 0, x, TABLE, power=2, dtype=float, shape=())
    )
    assert_alike(found, expected)
    assert at_once


def test_a_chunk_does_not_change() -> None:
    x = da.from_array(ARRAY.copy(), chunks=CHUNKS, asarray=False)

    def sorting(v: Any) -> Any:
        v.sort()
        return v[0]

    found, expected, at_once = computed(
        lambda: da.apply_along_axis(sorting, 0, x, dtype=float, shape=())
    )
    assert_alike(found, expected)
    assert not at_once


def test_a_result_is_an_array_of_its_own() -> None:
    x = da.from_array(ARRAY, chunks=CHUNKS)
    made = da.apply_along_axis(lambda v: v, 0, x, dtype=float, shape=(12,))
    found = made.map_blocks(lambda b: b + 1).blocks[0, 0, 0].compute(scheduler="sync")
    assert not np.shares_memory(found, ARRAY)


RANGE = 2.0


def made_anew(offset: float) -> Callable[[Any], Any]:
    return lambda v: v.max() - v.min() * RANGE + offset


@pytest.mark.parametrize("vectorize", [True, False])
def test_graphs_with_the_same_function_are_recorded_once(
    vectorize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(lanewise, "result_of", lambda *a: made.append(RESULT_OF(*a)) or made[-1])

    def found(function: Callable[[Any], Any]) -> Any:
        x = da.from_array(ARRAY, chunks=(-1, 3, 4))
        if not vectorize:
            return da.apply_along_axis(function, 0, x, dtype=float, shape=()).compute()
        x = x.transpose(1, 2, 0)
        return da.apply_gufunc(
            function, "(t)->()", x, vectorize=True, output_dtypes=float
        ).compute()

    expected = ARRAY.max(axis=0) - ARRAY.min(axis=0) * 2
    with dask.config.set(scheduler="sync"):
        for _ in range(3):
            np.testing.assert_allclose(found(made_anew(1.5)), expected + 1.5)
        assert len(made) == 1
        np.testing.assert_allclose(found(made_anew(0.5)), expected + 0.5)
        assert len(made) == 2
        monkeypatch.setitem(globals(), "RANGE", 0.0)
        np.testing.assert_allclose(found(made_anew(0.5)), ARRAY.max(axis=0) + 0.5)
        assert len(made) == 3


def random_function(rng: np.random.Generator) -> tuple[Callable[[Any], Any], str]:
    """Return a function of lanes, and its lines."""
    lines = ["def function(v):", "    w = v * 1"]
    vectors, numbers = ["v", "w"], ["1.5"]

    def pick(names: list[str]) -> str:
        return names[rng.integers(len(names))]

    for k in range(rng.integers(2, 7)):
        one, other, number = pick(vectors), pick(vectors), pick(numbers)
        vector = pick([
            f"{one} + {other}", f"{one} * {number}", f"np.where({one} > {number}, {other}, {one})",
            f"{one} - {one}.mean()", f"np.sort({one})", f"np.cumsum({one}) / 7", f"{one}[::-1]",
            f"np.abs({one}).clip(0, {number})", f"np.roll({one}, 2)", f"np.maximum({one}, {other})",
            f"np.nan_to_num({one}) % 3", f"np.gradient({one})", f"np.take({one}, [1, 0] * 6)",
            f"np.concatenate([{one}[3:], {other}[:3]])", f"np.stack([{one}, {other}]).min(axis=0)",
            f"({number} + {one}.reshape(4, 3) * [0.5, 1.5, 2.5]).ravel()",
            f"np.maximum.accumulate({one}) + [1, 2, 3] * 4", f"-{one} // 2 + {number}",
            f"np.where(np.isnan({one}), {number}, {other})", f"np.interp({one}, TABLE, {other})",
            f"({one}[:, None] < {other}).sum(axis=1)", f"np.convolve({one}, TABLE[:4], 'same')",
            f"np.array([x * {number} for x in {one}])", f"{one}.reshape(3, 4).T.reshape(-1)",
            f"np.clip({one}, 0.25, 0.75)", f"np.full(12, 0.5) * {one}[::-1]",
            f"np.repeat({one}[1::4], 4) - {other}", f"np.argsort({one}) * {number}",
        ])  # fmt: skip
        scalar = pick([
            f"{one}.max()", f"np.median({one})", f"{one}[{rng.integers(12)}]", f"np.sum({one} > 1)",
            f"np.nanmin({one})", f"np.argmin({one})", f"{one}.std(ddof=1)", f"{number} + 1",
            f"np.dot({one}, {other})", f"np.percentile({one}, 40)", f"np.any({one} > 1) * 2",
            f"abs({number}) ** 0.5",
            f"max({number}, {one}[2])", f"({number} if {one}[3] > {other}[1] else {one}[0] + 0.0)",
            f"divmod({number}, 2)[1]", f"(({one} > 0.3) & ({other} < 0.6)).mean()",
            f"sum(x for x in {one}[:4])", f"({one} + {number}).argmax() % 5", f"{one}[-2:].prod()",
            f"{one}.reshape(3, 4).max(axis=1).min()", f"-(1 - {number})", f"{number} * True",
        ])  # fmt: skip
        if rng.random() < 0.3:
            lines += [f"    if {pick(['v.max()', 'v[0]', 'v[-1]'])} > {rng.random():.2}:",
                      f"        w = {vector}",
                      "    else:", f"        w = w + {scalar}"]  # fmt: skip
        elif rng.random() < 0.1:
            lines += [f"    m{k} = np.zeros(12)", f"    m{k}[2:] = {one}[:-2]",
                      f"    m{k} += {number}", f"    m{k}[::3] *= {other}[:4]"]  # fmt: skip
            vectors.append(f"m{k}")
        elif rng.random() < 0.1:
            lines += [f"    n{k} = {number}", f"    for j in range({rng.integers(2, 6)}):",
                      f"        n{k} = n{k} * 0.5 + {one}[j]"]  # fmt: skip
            numbers.append(f"n{k}")
        elif rng.random() < 0.2:
            lines += [f"    u{k} = np.copy({one} * 1.5)", f"    u{k}[{one} > 0.5] = {number}",
                      f"    u{k}[:2] += {other}[:2]"]  # fmt: skip
            vectors.append(f"u{k}")
        elif rng.random() < 0.5:
            lines.append(f"    x{k} = {vector}")
            vectors.append(f"x{k}")
        else:
            lines.append(f"    n{k} = {scalar}")
            numbers.append(f"n{k}")
    results = [f"w * {numbers[-1]}", f"np.array([w[0] * 1.0, 0.5 * {vectors[-1]}.sum()])"]
    lines.append(f"    return ({pick([*results, f'{vectors[-1]}.sum() + w[1]'])}) + 0.0")
    names: dict[str, Any] = {"np": np, "TABLE": TABLE}
    exec("\n".join(lines), names)
    return names["function"], "\n".join(lines)


@pytest.mark.parametrize("seed", every(10, range(400)))
def test_random_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    function, lines = random_function(rng)
    array = [ARRAY, GAPS, ARRAY.astype("f4"), (ARRAY * 9).astype(int)][rng.integers(4)]
    axis = int(rng.integers(3)) if array.shape[0] == 8 else 0
    found, expected, _ = computed(lambda: along(function, array, axis))
    tolerance = 2e-4 if array.dtype == np.float32 else 1e-9
    assert found.dtype == expected.dtype, lines
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=lines)
