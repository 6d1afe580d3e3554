"""Arrays that were computed before parts of a copy of theirs are assigned."""

from __future__ import annotations

import itertools
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched import enable
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from tests.graph.examining import assert_safe, recorded

X = np.random.default_rng(0).normal(size=(6, 5))
MADE = [
    "np.cumsum(x, axis=0)", "np.cumsum(x, axis=1)", "np.cumprod(x, axis=0)",
    "np.maximum.accumulate(x, axis=0)", "x.sum(axis=0)", "x.var(axis=0)", "x * 2",
    "np.gradient(x, axis=0)", "np.take(x, [2, 1, 0, 3], axis=0)", "np.concatenate([x, x])",
]  # fmt: skip
COPIED = ["y.astype(y.dtype)", "y.copy()", "y + 0"]
ASSIGNED = ["z[1:] = y[1:] - y[:-1]", "z[1:] = y[1:] * 2", "z[:1] = y[-1:]", "z[1:] = x.max()",
            "z[:2] = y[:2] + y[1:3]; z[1:] = z[1:] - z[:-1]"]  # fmt: skip
RETURNED = ["z", "(z, y)"]


@pytest.mark.parametrize("made", MADE)
def test_what_is_not_assigned_stays(made: str) -> None:
    """Sums that were computed were added once more where they were copied."""
    recordings = 0
    for copied, assigned, result in itertools.product(COPIED, ASSIGNED, RETURNED):
        names: dict[str, Any] = {"np": np}
        lines = [f"y = {made}", f"z = {copied}", assigned, f"return {result}"]
        exec("def f(x):\n" + "".join(f"    {line}\n" for line in lines), names)
        function = names["f"]
        found = examined(function, [Kind.OTHER], {})
        assert found.reason is None
        try:
            recording = recorded(function, found.outside, X)
        except UnrecordableError:
            continue
        recordings += 1
        for given, results in ((X, recording.result), (X + 1, recording.run(X + 1))):
            expected = function(given)
            pairs = zip(*((each,) if result == "z" else each for each in (results, expected)),
                        strict=True)  # fmt: skip
            for one, other in pairs:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert recordings


def moving_sum(x: Any) -> Any:
    total = np.cumsum(x, axis=0)
    found = total.astype(float)
    found[3:] = total[3:] - total[:-3]
    return found


def test_a_moving_sum() -> None:
    assert_safe(moving_sum, np.arange(12.0).reshape(6, 2))


REDUCED = {
    "z = np.zeros((4, 1)); z[:] = x.sum(axis=0)": (3, 4, 1),
    "z = np.zeros(x.shape[0]); z[:] = x.sum(axis=1)": (3, 4),
    "z = np.zeros((3, 1), int); z[:] = x.argmax(axis=1, keepdims=True)": (3, 4),
    "z = np.zeros((3, 1), 'f4'); z[:] = x.astype('f4').sum(axis=1, keepdims=True)": (3, 4),
}


@pytest.mark.parametrize("program", REDUCED)
def test_reductions_are_assigned(program: str) -> None:
    """Sums were written by the loops over what is added up: to other places, or not at all."""
    names: dict[str, Any] = {"np": np}
    exec("def f(x):\n    " + program + "\n    return z\n", names)
    x = np.random.default_rng(1).integers(-9, 9, REDUCED[program]).astype(float)
    assert_safe(names["f"], x)
    expected = names["f"](x)
    found = da.from_array(x, chunks=-1).map_blocks(
        names["f"], dtype=expected.dtype, chunks=expected.shape,
        drop_axis=list(range(expected.ndim, x.ndim)),
    )  # fmt: skip
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), enable():
        np.testing.assert_array_equal(found.compute(scheduler="sync"), expected)
