"""Elements that a mask chooses, and that are written back to where it chooses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from tests.graph.examining import assert_safe, recorded
from tests.record.recording import assert_same

X = np.random.default_rng(3).normal(size=(5, 4))


def once(x: Any) -> Any:
    found = np.floor(x)
    found[x > 0] -= 1
    return found


def of_itself(x: Any) -> Any:
    found = x + 0.0
    valid = x > 0
    found[valid] = np.log(found[valid]) / np.sqrt(found[valid]) + found.max()
    return found


def of_another(x: Any) -> Any:
    found = x * 0.0
    for least in (0, 1):
        valid = (x > least) & (x < least + 1)
        found[valid] = np.exp(-x[valid]) + least if least else x[valid] ** 2
    return found


@pytest.mark.parametrize("function", [once, of_itself, of_another])
def test_nothing_is_chosen(function: Any) -> None:
    """Kernels compute the whole array: no call of NumPy's is between them."""
    assert_safe(function, X)
    outside = examined(function, [Kind.OTHER], {}).outside
    recording = recorded(function, outside, X)
    assert len(recording.plan.steps) == len(recording.launches)
    assert not recording.recorder.breaks


def shown(x: Any) -> Any:
    found = np.floor(x)
    valid = x > 0
    part = found[valid]
    found[valid] = 3
    return found * part.sum()


@pytest.mark.parametrize("function", [shown])
def test_what_is_read_is_chosen(function: Any) -> None:
    outside = examined(function, [Kind.OTHER], {}).outside
    recording = recorded(function, outside, X)
    assert_same(recording.result, function(X))
    assert [operation for operation, _ in recording.recorder.breaks] == ["getitem"]


DTYPES = ["f8", "f4", "f2", "i8", "i4", "u1", "?"]
STATEMENTS = [
    "y[m] += 2", "y[m] -= 3", "y[m] *= 0.5", "y[m] = -y[m]", "y[m] = y[m] + y[m]",
    "y[m] = np.sqrt(y[m])", "y[m] = z[m]", "y[m] = z[m] / y[m]", "y[m] = np.maximum(y[m], 2)",
    "y[m] = y[m] + z[m].astype('f4')", "z = y[m]; z += 1; y[m] = z", "m = m & (y > 1)",
    "m = y > 2", "m = x == 3", "y = y * 2", "y[m] = np.isnan(y[m])", "y[m] = y[m] ** 2",
    "y[m] = 300", "y[m] = y[m] // 2", "y[m] = np.floor_divide(7, y[m])", "y[m] %= 3",
]  # fmt: skip


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4), st.sampled_from(DTYPES),
       st.integers(0, 9))  # fmt: skip
def test_it_is_numpys(body: list[str], dtype: str, seed: int) -> None:
    lines = ["y = np.add(x, 0)", "z = np.add(x, 1)", "m = x > 1", *body, "return y"]
    names: dict[str, Any] = {"np": np}
    exec("def made(x):\n" + "".join(f"    {line}\n" for line in lines), names)
    made = names["made"]
    found = examined(made, [Kind.OTHER], {})
    values = np.random.default_rng(seed).integers(0, 6, (4, 3)).astype(dtype)
    with np.errstate(all="ignore"):
        try:
            expected = made(values.copy())
        except Exception:  # noqa: BLE001  which NumPy raises of real arrays, too
            return
        if found.reason is not None:
            return
        try:
            recording = recorded(made, found.outside, values)
        except (UnrecordableError, Exception):  # noqa: BLE001  It runs on real arrays.
            return
        assert_same(recording.result, expected)
        other = np.roll(values, 1)
        assert_same(recording.run(other), made(other.copy()))
