"""Axes of few elements are joined by calls, with the values, dtypes and errors of NumPy's sums."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

from gpusched.record import reductions
from gpusched.record.functions import divides
from tests.record.recording import outcome, record
from tests.tiers import every

JOINS = ["sum", "prod", "min", "max", "any", "all", "mean", "nansum", "nanprod", "nanmin", "nanmax",
         "nanmean", "amin", "count_nonzero"]  # fmt: skip
UFUNCS = [np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logical_or,
          np.logical_and, np.bitwise_or, np.bitwise_xor]  # fmt: skip


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do so for few results, too."""
    monkeypatch.setattr(reductions, "RESULTS", 0)


def any_array(draw: random.Random) -> np.ndarray:
    shape = draw.choice([(3, 4), (4, 2, 3), (12, 8), (2, 3, 2, 5), (1, 8), (7, 1, 2), (9, 3)])
    rng = np.random.default_rng(draw.randrange(1 << 30))
    values = rng.integers(-3, 4, shape).astype(draw.choice(["f8", "f4", "i4", "u1", "?", "i8"]))
    if values.dtype.kind == "f":
        values = values * values.dtype.type(0.7)
        special = [np.nan, np.inf, -np.inf, -0.0, np.finfo(values.dtype).max]
        for place in rng.integers(0, values.size, draw.choice([0, 0, 2, 5])):
            values.flat[place] = draw.choice(special)
    return draw.choice([lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: a.T])(values)


def any_function(draw: random.Random, ndim: int) -> Any:
    axes = draw.sample(range(ndim), draw.randint(1, max(ndim - 1, 1)))
    axis: Any = axes[0] if len(axes) == 1 else tuple(axes)
    options: dict[str, Any] = {"axis": axis, "keepdims": draw.random() < 0.3}
    before = draw.choice([lambda x: x, lambda x: x + x, lambda x: (x > 0) * x, abs])
    stacked = draw.random() < 0.3
    name, ufunc = draw.choice(JOINS), draw.choice(UFUNCS)
    of_ufunc = draw.random() < 0.4
    if not of_ufunc and draw.random() >= 0.8 and name in ("sum", "prod"):
        options["dtype"] = draw.choice(["f4", "f8", "i8"])

    def function(x: Any) -> Any:
        y = before(x)
        y = np.stack([y, x, y], axis=axes[0]) if stacked else y
        found = ufunc.reduce(y, **options) if of_ufunc else getattr(np, name)(y, **options)
        return found, found + 1, y

    return function


@pytest.mark.parametrize("seed", every(8, range(40)))
@pytest.mark.usefixtures("always")
def test_any_few_values_are_joined_as_numpy_does(seed: int) -> None:
    for k in range(40):
        draw = random.Random(f"{seed}-{k}")
        x = any_array(draw)
        function = any_function(draw, x.ndim)
        expected = outcome(function, x)
        if isinstance(expected, type):
            continue
        found = outcome(lambda x, f=function: record(f, x, backend="python").result, x)
        for ours, numpys in zip(found, expected, strict=True):
            assert ours.dtype == numpys.dtype and ours.shape == numpys.shape
            exact = numpys.dtype.kind != "f"
            rtol = 0 if exact else 16 * np.finfo(numpys.dtype).eps
            with warnings.catch_warnings(action="ignore"):
                np.testing.assert_allclose(ours, numpys, rtol=rtol, atol=0 if exact else 1e-5)


def test_blocks_and_bands_are_one_kernel() -> None:
    x = np.random.default_rng(0).normal(size=(64, 96))
    for function in (
        lambda x: (x * 2 + 1).reshape(32, 2, 48, 2).mean(axis=(1, 3)) - 1,
        lambda x: np.sqrt((x.reshape(64, 32, 3) ** 2).sum(-1)),
        lambda x: np.abs(x).reshape(2, 32, 96).max(axis=0) + 1,
    ):
        found = record(function, x)
        np.testing.assert_allclose(found.result, function(x), rtol=1e-14, atol=1e-14)
        assert len(found.launches) == 1


def test_long_expressions_are_computed_once() -> None:
    x = np.random.default_rng(0).normal(size=(1024, 8))

    def function(x: Any) -> Any:
        for k in range(9):
            x = x * 0.5 + k
        return x.sum(axis=1)

    found = record(function, x)
    np.testing.assert_allclose(found.result, function(x), rtol=1e-14, atol=1e-14)
    assert len(found.launches) == 2


def test_errors_are_numpys() -> None:
    x = np.full((1024, 3), np.finfo("f8").max)
    with pytest.warns(RuntimeWarning, match="overflow encountered in reduce"):
        np.sum(x, axis=1)
    from gpusched.emit.floatingpoint import take

    take()
    record(lambda x: np.sum(x, axis=1), x, backend="cpu")
    assert take()


@pytest.mark.parametrize(
    ("shape", "into", "expected"),
    [
        ((6, 4), (3, 2, 2, 2), True), ((6, 4), (6, 4), True), ((6, 4), (24,), False),
        ((6, 4), (1, 6, 1, 4, 1), True), ((6, 1, 4), (6, 4), True), ((6, 4), (2, 12), False),
        ((4,), (2, 1, 2), True), ((), (1, 1), False), ((6,), (4, 2), False),
    ],
)  # fmt: skip
def test_axes_that_are_divided(shape: Any, into: Any, expected: bool) -> None:
    assert divides(shape, into) is expected
    if expected:
        given = np.broadcast_to(np.arange(shape[-1]), shape)[..., ::-1]
        assert np.may_share_memory(given, given.reshape(into))
