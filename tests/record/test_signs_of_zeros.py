"""Negative zeros go through every function as in NumPy: 1 / x and arctan2 show their signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusched.plan.expression import UnrecordableError
from gpusched.record import reductions
from tests.record.recording import record
from tests.tiers import every

FUNCTIONS = """
x.sum(axis=0) | x.sum(axis=-1) | x.sum() | np.add.reduce(x, axis=0) | x.mean(axis=0)
x.mean(axis=-1) | np.nansum(x, axis=0) | np.nanmean(x, axis=0) | np.sum(x, axis=0, keepdims=True)
x.reshape(2, -1).sum(axis=0) | x[:1].sum(axis=0) | x[None].sum(axis=0) | x[..., None].sum(axis=-1)
x[:1].mean(axis=0) | np.nansum(x[:1], axis=0) | np.nanmean(x[:1], axis=0) | np.average(x, axis=0)
np.sum(x, axis=0, initial=-0.0) | np.sum(x, axis=0, where=x < 0) | x.T.sum(axis=0)
np.add.reduce(x[:1], axis=0) | np.sum(x[:1], axis=0, dtype='f8') | (x * 2).sum(axis=0)
np.stack([x, x]).sum(axis=0) | np.stack([x, x]).mean(axis=0) | np.add.reduce([x, x])
(x[:, None] + x).sum(axis=0) | x.cumsum(axis=0) | np.trapezoid(x, axis=0) | x.prod(axis=0)
np.add.reduceat(x, [0, 1], axis=0) | x[:1].prod(axis=0) | np.add.accumulate(x) | x.sum(axis=())
np.nancumsum(x, axis=0) | np.lib.stride_tricks.sliding_window_view(x, 2, axis=0).sum(axis=-1)
np.lib.stride_tricks.sliding_window_view(x, 1, axis=0).sum(axis=-1) | np.diff(x, axis=0)
np.gradient(x, axis=0) | np.nan_to_num(x) | np.round(x) | np.clip(x, -1, 1) | np.where(x == 0, x, 1)
np.hypot(x, x) | abs(x) | x % 3 | x // 3 | np.fmod(x, 3) | np.sign(x) | x ** 3 | np.cbrt(x)
np.trunc(x) | np.rint(x) | np.expm1(x) | np.log1p(x) | np.sin(x) | np.arctan2(x, x) | np.sqrt(x)
x * x.sum() | np.float_power(x, 3) | np.conj(x) | np.square(x) | np.reciprocal(x) | x.astype('f4')
x + 0 | x - 0 | 0 - x | x + 0.0 | x + -0.0 | x * 1 | x / 1 | -x | +x | x - x | np.copysign(0, x)
np.ldexp(x, 2) | np.heaviside(x, x) | np.deg2rad(x) | np.sinh(x) | np.tanh(x) | np.arcsin(x)
x * -1 | np.modf(x)[0] | np.frexp(x)[0] | np.positive(x) | np.fabs(x) | 0 * x | np.nextafter(x, 0)
""".replace("\n", "|").split("|")


@pytest.fixture(params=[False, True])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few values joined by calls, also of small arrays."""
    if request.param:
        monkeypatch.setattr(reductions, "RESULTS", 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", every(2, [(4, 3), (1, 3), (4, 1), (12, 2)]))
def test_negative_zeros_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    x, compared = -np.zeros(shape, dtype), 0
    for function in filter(None, map(str.strip, FUNCTIONS)):
        space: dict[str, Any] = {"np": np}
        exec(f"def f(x):\n    return {function}", space)
        try:
            expected = space["f"](x)
        except ValueError:
            continue  # There are too few rows.
        try:
            found = record(space["f"], x, backend="python").result
        except UnrecordableError:
            continue
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected), function)
        compared += 1
    assert compared > 60
