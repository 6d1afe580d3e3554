"""Deviations of float32 from a mean that exists are computed in float32, as in NumPy's `var`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dask.array.reductions import moment_chunk
from hypothesis import given
from hypothesis import strategies as st

from gpusched.fusion.record import Recorder
from tests.fusion.recording import BACKENDS, record
from tests.fusion.slabbed import make_small, put_some

RANDOM = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def after_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no squares be added up while the sum is, as on GPUs."""
    monkeypatch.setattr(Recorder, "_deviations", lambda self, node, axes: None)


def of_dask(x: Any, axis: Any = 0) -> Any:
    """Squares of deviations of a chunk, as dask adds them up."""
    return moment_chunk(x, dtype="f4", axis=axis, keepdims=True)["M"]


def of_numpy(x: Any, axis: Any = 0) -> Any:
    return np.var(x, axis=axis)


def squared_in(function: Callable[..., Any], x: np.ndarray, **options: Any) -> set[str]:
    """Return the dtypes in which kernels square."""
    launches = record(lambda chunk: function(chunk, **options), x).launches
    statements = [s for launch in launches for s in launch.kernel.kernel.statements]
    return {s.dtype for s in statements if s.operation == "square"}


@pytest.mark.parametrize("function", [of_dask, of_numpy])
@pytest.mark.parametrize("axis", [0, 1, (0, 1), (1, 2), (0, 1, 2)])
def test_no_deviation_is_wider_than_its_value(function: Callable[..., Any], axis: Any) -> None:
    x = RANDOM.normal(3, 2, (20, 30, 40)).astype("f4")
    assert squared_in(function, x, axis=axis) == {"float32"}
    assert squared_in(function, x.astype("f8"), axis=axis) == {"float64"}


@given(
    st.integers(1, 200),
    st.integers(1, 9),
    st.sampled_from([0, 1, (0, 1)]),
    st.sampled_from([2.0**-100, 2.0**-10, 1.0, 2.0**60]),
    st.sampled_from([0, 1, 100]),
    st.sampled_from(sorted(BACKENDS)),
    st.integers(0, 9999),
    st.data(),
)
def test_squares_are_those_of_wider_deviations(
    rows: int,
    width: int,
    axis: Any,
    scale: float,
    mean: int,
    backend: str,
    seed: int,
    data: st.DataObject,
) -> None:
    # Sums are exact, and deviations much larger than what a mean is rounded by, or 0.
    steps = np.random.default_rng(seed).integers(-32, 32, (rows, width))
    x = ((mean + steps / 16) * scale).astype("f4")
    put_some(x, (np.nan, np.inf, -np.inf, 3e38, -3e38), data)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        make_small(patch, 64)
        recorded = record(lambda chunk: of_dask(chunk, axis), x, backend=backend)
        wide = x.astype("f8")
        number = wide.size // wide.sum(axis=axis).size
        total = wide.sum(axis=axis, keepdims=True).astype("f4")
        expected = ((wide - total / number) ** 2).sum(axis=axis, keepdims=True).astype("f4")
        once_more = recorded.plan.run((x,))[0]
    for found in (recorded.result, once_more):
        np.testing.assert_allclose(np.asarray(found)[..., 0], expected, rtol=2e-5)


def around_a_constant(x: Any) -> Any:
    return np.sum((x - np.float64(0.1)) ** 2, axis=0, dtype="f4")


def around_the_mean_of_others(x: Any) -> Any:
    return np.sum((x - np.sum(x + 1, axis=0) / np.full(x.shape[1:], 20)) ** 2, axis=0, dtype="f4")


def around_means_along_another_axis(x: Any) -> Any:
    return np.sum((x - np.sum(x, axis=1) / np.full(20, 20)) ** 2, axis=1, dtype="f4")


def around_another_quotient(x: Any) -> Any:
    return np.sum((x - np.sum(x, axis=0) / np.full(20, 19)) ** 2, axis=0, dtype="f4")


def around_the_largest(x: Any) -> Any:
    return np.sum((x - np.max(x, axis=0) / np.full(20, 20)) ** 2, axis=0, dtype="f4")


def in_float64(x: Any) -> Any:
    return np.sum((x - np.sum(x, axis=0) / np.full(20, 20)) ** 2, axis=0)


def of_a_wide_sum(x: Any) -> Any:
    mean = np.sum(x, axis=0, dtype="f8") / 20
    return np.sum((x - mean) ** 2, axis=0, dtype="f4")


@pytest.mark.parametrize(
    "function",
    [
        around_a_constant,
        around_the_mean_of_others,
        around_means_along_another_axis,
        around_another_quotient,
        around_the_largest,
        in_float64,
        of_a_wide_sum,
    ],
    ids=lambda f: f.__name__,
)
def test_what_only_looks_like_it_stays_wide(function: Callable[..., Any]) -> None:
    x = RANDOM.normal(3, 2, (20, 20)).astype("f4")
    assert squared_in(function, x) == {"float64"}
    result = np.asarray(record(function, x).result)
    np.testing.assert_allclose(result, function(x), rtol=1e-6)
