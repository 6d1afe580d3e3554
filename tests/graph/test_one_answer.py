"""The first run of a program and those from its plan give the same bits, whatever it calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics

Step = Callable[[np.ndarray], np.ndarray]

STEPS: dict[str, Step] = {
    "power": lambda a: np.power(np.abs(a), a[:1] * 0 + 1.5) - 0.2,
    "isclose": lambda a: a + np.isclose(a, 0.5, atol=0.3),
    "integers": lambda a: a - np.round((a * 100).astype("i4"), -1) / 7,
    "variance": lambda a: a - np.var(a, axis=()),
    "exp": lambda a: np.exp(-np.abs(a)),
    "tanh": lambda a: np.tanh(a) * 1.7,
    "square": lambda a: a * a - 0.3 * a + 1.1,
    "clip": lambda a: np.clip(a, -0.7, 0.9),
    "where": lambda a: np.where(a > 0.1, a / 3, a * 7),
    "centred": lambda a: a - a.mean(axis=-1, keepdims=True),
    "scaled": lambda a: a / (np.std(a, axis=0, keepdims=True) + 1),
    "sums": lambda a: a + np.sum(a * 1.3, axis=0, keepdims=True),
    "rows": lambda a: a - np.max(a, axis=1, keepdims=True),
    "half": lambda a: a[::-1] + a[:, ::-1],
}
"""Functions of arrays of two axes; of the first ones there is no kernel, as they are called."""

FINAL: dict[str, Step] = {
    "sum": lambda a: np.sum(a, axis=0, keepdims=True),
    "var": lambda a: np.var(a, axis=1, keepdims=True),
    "mean": lambda a: np.mean(a, axis=0),
}
"""What comes last."""


@pytest.mark.slow  # It compiles some kernels for each example, if none are kept.
@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=4),
    final=st.sampled_from(["array", *FINAL]),
    dtype=st.sampled_from(["f4", "f8"]),
    shape=st.sampled_from([(7, 150), (64, 64)]),
    seed=st.integers(0, 99),
)
def test_first_and_second_run_are_equal(
    names: list[str], final: str, dtype: str, shape: tuple[int, int], seed: int
) -> None:
    functions = [STEPS[name] for name in names]
    if final != "array":
        functions.append(FINAL[final])
    steps = tuple(
        ProgramStep(function, (Register(k),), {}, recorded=True)
        for k, function in enumerate(functions)
    )
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    settings = {"gpusched.fusion.minimum-elements": 1, "gpusched.fusion.minimum-operations": 1}
    with dask.config.set(settings):
        run = Program(steps, 1)
        reset_statistics()
        first, second, third = (run(values) for _ in range(3))
    assert statistics().recordings == 1
    assert first.tobytes() == second.tobytes() == third.tobytes()
    with np.errstate(all="ignore"):
        expected = reduce(lambda a, function: function(a), functions, values)
    assert first.dtype == expected.dtype
    scale = float(np.abs(expected).max(initial=0)) + 1
    np.testing.assert_allclose(first, expected, rtol=1e-3, atol=1e-4 * scale)
