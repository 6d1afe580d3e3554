"""Random functions that choose elements by masks, and by where these are true."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.plan import ReplayError
from tests.graph.examining import recorded
from tests.record.test_any_assignments import assert_close
from tests.tiers import exhaustive

MASKS = ["x > {n}", "y <= {n}", "(x > {n}) & (y < 2)", "x != x", "x == x", "x", "x.astype(bool)",
         "x[:, 0] > {n}", "x.sum(axis=1) > {n}", "x[0] > {n}", "~(x > {n})",
         "x.T > {n}"]  # fmt: skip
PLACES = ["{m}", "np.where({m})", "np.nonzero({m})", "({m}).nonzero()", "np.where({m})[0]",
          "np.where({m})[-1]", "np.where({m})[::-1]", "(*np.where({m}),)"]  # fmt: skip
STEPS = [
    "y[p] = {n}", "y[p] = y[p] * 2 + {n}", "y[p] += {n}", "y[p] = x[p]", "y[p] = np.sqrt(x[p] + 9)",
    "y[p] = x[q]", "y[q] = {n}", "q = p", "m = {m}", "p = np.where(m)", "y[m] = {n}", "m[:] = True",
    "y = y + x[p].sum()", "y = y + len(p)", "y = y + np.sum(p[0])", "y[p[0]] = {n}",
    "i = p[0]; i += 0; y[p] = {n}", "p = {p}", "q = {p}", "y[p] = y[q] + {n}", "x = y.T * 1",
    "y[p][...] = 7", "y[p] = x[p].max() if x.size else 1", "y = y * 2 - {n}",
    "y = np.piecewise(y, [m, {m}], [lambda v: v * 2, {n}])",
    "y = np.piecewise(x, [{m}], [lambda v: v - {n}, lambda v: np.abs(v) + y.max()])",
    "y = np.piecewise(x, [{m}], [lambda v: v.sum(), abs])",
]  # fmt: skip


def any_function(draw: Random, x: np.ndarray) -> Any:
    """Return a function that NumPy computes for a chunk."""
    for _ in range(100):
        lines = ["y = x * 2", "m = x > 0", "m = {m}", "p = {p}", "q = p"]
        lines += [draw.choice(STEPS) for _ in range(draw.choice([1, 2, 3, 4]))]
        lines = [_filled(draw, line) for line in lines]
        lines.append(draw.choice(["return y + 1", "return y + 1", "return y, x + 1", "return p"]))
        space: dict[str, Any] = {"np": np}
        exec("def f(x):\n" + "".join(f"    {line}\n" for line in lines), space)
        space["f"].__doc__ = "\n".join(lines)
        try:
            space["f"](x.copy())
        except (ValueError, IndexError, TypeError):
            continue
        return space["f"]
    raise AssertionError("NumPy computes none of a hundred functions")


def _filled(draw: Random, line: str) -> str:
    for place, given in (("p", PLACES), ("m", ["m", *MASKS]), ("n", ["0", "2", "-1.5"])):
        while f"{{{place}}}" in line:
            line = line.replace(f"{{{place}}}", draw.choice(given), 1)
    return line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1, *exhaustive(*range(2, 40))])
def test_any_masks_are_numpys(seed: int) -> None:
    draw, recordings = Random(seed), 0
    while recordings < 60:
        shape, dtype = draw.choice([(3, 4), (4, 4), (5, 1)]), draw.choice(["f8", "f4", "i4"])
        x = np.array([draw.randint(-4, 5) for _ in range(int(np.prod(shape)))], dtype)
        x = x.reshape(shape)
        function = any_function(draw, x)
        found = examined(function, [Kind.OTHER], {})
        if found.reason is not None:
            continue
        with np.errstate(all="ignore"):
            try:
                recording = recorded(function, found.outside, x.copy())
            except UnrecordableError:
                continue  # It runs on the arrays themselves.
            recordings += 1
            assert_close(recording.result, function(x.copy()), function.__doc__)
            # Of the others one has each element chosen, and one has none.
            for given in (x, np.abs(x) + 3, -np.abs(x) - 3):
                with suppress(ReplayError):  # It is recorded again.
                    assert_close(recording.run(given.copy()), function(given.copy()),
                                 function.__doc__)  # fmt: skip


def by_where(b: Any) -> Any:
    y, chosen = b * 2, np.where(b > 0.5)
    y[chosen] = np.sqrt(b[chosen])
    return y + 1


def by_rows(b: Any) -> Any:
    (rows,) = np.nonzero(b[:, 0] > 0.5)
    y = b * 2
    y[rows] = 0
    return y + 1


def by_method(b: Any) -> Any:
    y = b - 0.3
    y[(y < 0).nonzero()] *= -1
    return y


def in_pieces(b: Any) -> Any:
    return np.piecewise(b * 2, [b < 0.2, b > 0.8], [lambda v: v * 2, np.sqrt, -1]) + 1


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("function", [by_where, by_rows, by_method, in_pieces])
def test_they_are_one_kernel(function: Any, no_plans: None) -> None:
    x = da.from_array(np.random.default_rng(3).random((40, 30)), chunks=(20, 30))
    program = x.map_blocks(function, dtype=float)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        assert gpusched.explain(program).totals.launches == 2
        gpusched.reset_statistics()
        np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-14)
    assert gpusched.statistics().fused_tasks == 2
