"""Elements that a mask chooses of each lane: ``v[~np.isnan(v)]``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.graph.test_every_lane import ARRAY, GAPS, along, assert_alike, computed
from tests.tiers import every


@pytest.fixture(autouse=True)
def fused(no_plans: None, no_compiler: None) -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        yield


def variation(v: Any) -> Any:
    v = v[~np.isnan(v)]
    if len(v) < 3:
        return np.nan
    return v.std(ddof=1) / np.abs(v).mean()


def middle(v: Any) -> Any:
    known = v[np.isfinite(v)]
    if known.size == 0:
        return -1.0
    return np.median(known) + known.max() - np.ptp(known) + 1 / 2 * len(known)


def upper(v: Any) -> Any:
    high = v[v > 0.4]
    return np.percentile(high, 75) * 2 if len(high) else 0.5


def changed(v: Any) -> Any:
    out = v.copy()
    out[v > 0.5] *= 2
    out[v < 0.2] = np.sqrt(v[v < 0.2]) - 1
    out[np.isnan(out)] = v[~np.isnan(v)].sum()
    return out


def seen_twice(v: Any) -> Any:
    one = v[v > 0.3]
    two = one
    one += 1
    return two.sum() - one.mean() * 2


def too_many(v: Any) -> Any:
    out = v.copy()
    out[v > -1] = v * 2  # A number for each, as it happens.
    return out.sum()


def of_lengths(v: Any) -> Any:
    count = len(v[v > 0.5])
    return v.sum() * (count - 1) / 7 + (3 * count) % 2 - (count + count) // 3


def of_truths(v: Any) -> Any:
    many, few = len(v[v > 0.5]) > 3, len(v[v < 0.2]) > 1
    both = np.where(many & few, 4.0, -(len(v[v > 0.5]) - abs(-many)))
    return (many + few) * v[0] + sum([many, few, many]) + (many * few - few) / 2 + both


def of_what_was_chosen(v: Any) -> Any:
    out = v.copy()
    mask = out > 0.5
    some, count = out[mask], len(out[mask])
    out[:] = 0
    mask[:] = True
    return some.sum() + count


def share(v: Any) -> Any:
    inside = v[(v > 0.2) & (v < 0.8)]
    return inside.prod() + (inside > 0.5).any() + np.count_nonzero(inside > 0.3) / v.size


WITH_GAPS = [variation, middle, upper, changed, of_lengths, of_truths, share,
             of_what_was_chosen,
             lambda v: np.exp(np.log(v[v > 0.1]).mean()),
             lambda v: len(v[v > 0.5]),
             lambda v: np.isnan(np.where(v > 0.5, -np.inf, v)[v < 1] ** 0.5).sum()]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", WITH_GAPS)
def test_elements_that_masks_choose(function: Callable[[Any], Any], dtype: str) -> None:
    x = da.from_array(GAPS.astype(dtype), chunks=(-1, 3, 8)).transpose(1, 2, 0)
    core = "(t)" if function is changed else "()"
    found, expected, at_once = computed(
        lambda: da.apply_gufunc(
            function, f"(t)->{core}", x, vectorize=True, output_dtypes=np.dtype(dtype)
        )
    )
    assert_alike(found, expected, 1e-5 if dtype == "f4" else 1e-11)
    assert at_once


def test_the_dtype_is_that_beside_a_length() -> None:
    x = ARRAY.astype("f4")
    for function in (of_lengths, of_truths):
        found, expected, at_once = computed(lambda f=function: along(f, x))
        assert_alike(found, expected, 1e-5)
        assert at_once


def test_integers() -> None:
    x = (ARRAY * 100).astype("i4")

    def of_some(v: Any) -> Any:
        some = v[v > 20]
        return np.array([some.min() * 1.0, some.max() + 0.5, some.sum() * 1.0, some.mean()])

    found, expected, at_once = computed(lambda: along(of_some, x))
    assert_alike(found, expected)
    assert at_once


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_nothing_are_an_error(name: str) -> None:
    x = da.from_array(ARRAY, chunks=(-1, 3, 8))
    made = da.apply_along_axis(
        lambda v: getattr(np, name)(v[v > 2]), 0, x, dtype=float, shape=()
    )  # fmt: skip
    with pytest.raises(ValueError, match="zero-size array"):
        made.compute(scheduler="sync")


def test_means_of_nothing_are_warned_of() -> None:
    x = da.from_array(ARRAY, chunks=(-1, 3, 8))
    made = da.apply_along_axis(lambda v: v[v > 0.95].mean(), 0, x, dtype=float, shape=())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made.compute(scheduler="sync")
    assert "Mean of empty slice" in {str(each.message) for each in found}


REFUSED: list[Callable[[Any], Any]] = [
    seen_twice,
    too_many,
    lambda v: v.max() if isinstance(v[v > 0.5], np.ndarray) else v.min(),
    lambda v: v.max() if isinstance(len(v[v > 0.5]), int) else v.min(),
    lambda v: v.max() if np.isscalar(len(v[v > 0.5])) else v.min(),
    lambda v: v.max() if (len(v[v > 0.5]) > 3) is True else v.min(),
    lambda v: ~(len(v[v > 0.5]) > 3) * v.min(),
    lambda v: v.max() if type(v[v > 0.5]) is np.ndarray else v.min(),
    lambda v: np.sort(v[v > 0.1])[0],
    lambda v: (v[v > 0.1] + v[v > 0.2][:1]).sum(),
    lambda v: v[v > 0.1][0],
    lambda v: sum(v[v > 0.1]),
    lambda v: np.ones(len(v[v > 0.1])).sum(),
    lambda v: 1 / len(v[v > 0.1]),
    lambda v: len(v[v > 0.1]) * 10**18 * 10 / 7,
    lambda v: np.diff(v[v > 0.1]).sum(),
]


@pytest.mark.parametrize("function", REFUSED)
def test_others_run_lane_by_lane(function: Callable[[Any], Any]) -> None:
    found, expected, at_once = computed(lambda: along(function, ARRAY))
    assert_alike(found, expected)
    assert not at_once


def random_function(rng: np.random.Generator) -> str:
    """Return the lines of a function of elements that masks choose."""
    masks = ["v > 0.3", "~np.isnan(v)", "(v < 0.6) & (v > 0.1)", "np.abs(v - 0.5) < w"]
    lines = ["def function(v):", f"    w = v.dtype.type({rng.random():.2})",
             f"    m = {masks[rng.integers(4)]}", "    a = v[m]", "    b = v[m] * 2"]  # fmt: skip
    names = ["a", "b"]
    for k in range(rng.integers(1, 6)):
        one, other = (names[rng.integers(len(names))] for _ in range(2))
        lines.append([
            f"    a{k} = {one} + {other}", f"    a{k} = np.maximum({one}, w)",
            f"    a{k} = {one} * {one}.mean()", f"    a{k} = {one} / len({other})",
            f"    a{k} = np.abs({one} - w) ** 0.5",
            f"    if len({one}) > {k + 3}:\n        return {one}.sum()\n    a{k} = {one}",
        ][rng.integers(6)])  # fmt: skip
        names.append(f"a{k}")
    last = names[-1]
    lines.append(f"    if {last}.size == 0:\n        return w * 3")
    results = [f"{last}.sum()", f"{last}.max() - {last}.min()", f"np.median({last})",
               f"{last}.std()", f"np.quantile({last}, 0.3)", f"{last}.mean() + len({last})",
               f"np.any({last} > 1) * w"]  # fmt: skip
    lines.append(f"    return {results[rng.integers(len(results))]}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", every(8, range(200)))
def test_random_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = random_function(rng)
    names: dict[str, Any] = {"np": np}
    exec(lines, names)
    dtype = ["f8", "f4"][rng.integers(2)]
    x = da.from_array(GAPS.astype(dtype), chunks=(-1, 3, 8)).transpose(1, 2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected, _ = computed(
            lambda: da.apply_gufunc(
                names["function"], "(t)->()", x, vectorize=True, output_dtypes=np.dtype(dtype)
            )
        )
    tolerance = 2e-5 if dtype == "f4" else 1e-9
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=lines)
