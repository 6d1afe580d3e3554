"""Random functions that assign what they compute to parts of arrays, and read it in other orders.

What is assigned is of any kind that has kernels of its own: elements, sums, scans, places.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from tests.graph.examining import recorded
from tests.tiers import exhaustive

VALUES = [
    "{x}", "{x} * 2 - {n}", "{x}.T", "{x}[{i}]", "{x}.sum(axis=0)", "{x}.max(axis=-1)", "{n}",
    "{x}.sum(axis=1, keepdims=True)", "{x}.mean(axis=0)", "{x}.argmax(axis=0)", "{x}.sum()",
    "{x}.argmin(axis=-1, keepdims=True)", "np.cumsum({x}, axis=0)", "np.var({x}, axis=-1)",
    "np.std({x}, axis=0, keepdims=True)", "np.take({x}, [0, 1], axis=0)", "np.diff({x}, axis=0)",
    "np.where({x} > {n}, {x}, {y})", "np.maximum.accumulate({x}, axis=-1)", "{x}.sum()",
    "np.sum({x}, dtype='f4')", "np.concatenate([{x}, {y}])", "np.digitize({x}, [0, 2])",
    "{x} + {y}", "{x}.astype({d})",
    "np.ravel({x}, {o})", "{x}.reshape(-1, order={o})", "{x}.flatten({o})",
    "np.gradient({x}, axis=0)",
]  # fmt: skip
MADE = ["np.zeros({x}.shape)", "np.zeros({x}.shape, {d})", "np.zeros({x}.shape[:1])", "{x} + 0",
        "np.zeros((*{x}.shape, 1))", "np.ones_like({x}, dtype={d})", "{x}.copy()", "{x}.T + 1",
        "{x}.sum(axis=0) + 0", "np.full((2, *{x}.shape), {n})", "{x}.astype({d})"]  # fmt: skip
STEPS = ["{t}[{i}] = {v}", "{t}[{i}] = {v}", "{t}[{i}] = {v}", "{t}[{i}] += {v}", "{t} += {v}",
         "{t}[{t} > {n}] = {n}", "{t} = {t}[{i}] * 1", "w = {t}[{i}]"]  # fmt: skip
INDEX = [
    "0",
    "-1",
    "1:",
    ":-1",
    ":",
    ":",
    "...",
    "..., 0",
    ":, 1:",
    "1:2",
    "..., :1",
    "0, ...",
    "1, 1:",
]


def any_function(draw: Random) -> tuple[Any, np.ndarray]:
    """Return a function that NumPy computes, and a chunk for it."""
    shape = draw.choice([(3, 4), (3, 4, 1), (1, 4), (4, 1, 2), (5,), (2, 3, 4)])
    dtype = draw.choice(["f8", "f8", "f4", "i4", "c16"])
    x = np.array([draw.randint(-4, 5) for _ in range(int(np.prod(shape)))], dtype).reshape(shape)
    x = x * (1 + 0.5j) if dtype == "c16" else x
    x = np.asarray(x, order=draw.choice("CF"))
    for _ in range(100):
        names, lines = ["x"], []
        for target in ("a", "b")[: draw.choice([1, 1, 2])]:
            lines.append(f"{target} = {draw.choice(MADE)}")
            lines += [draw.choice(STEPS) for _ in range(draw.choice([1, 1, 2]))]
            lines = [_filled(draw, line, names, target) for line in lines]
            names.append(target)
        used = draw.choice([*names[1:], "w" if any(ln.startswith("w") for ln in lines) else "a"])
        lines.append(
            f"return {_filled(draw, draw.choice([used, '(a, x * 2)', '{v}']), [used], used)}"
        )
        space: dict[str, Any] = {"np": np}
        exec("def f(x):\n" + "".join(f"    {line}\n" for line in lines), space)
        space["f"].__doc__ = "\n".join(lines)
        try:
            space["f"](x.copy("K"))
        except (ValueError, IndexError, TypeError):
            continue
        return space["f"], x
    raise AssertionError("NumPy computes none of a hundred functions")


def _filled(draw: Random, line: str, names: list[str], target: str) -> str:
    """Return a line with something in each of its places."""
    value = draw.choice(VALUES) if "{v}" in line else ""
    line = line.replace("{v}", value)
    for place, given in (("x", names), ("y", names), ("t", [target]), ("i", INDEX),
                         ("n", ["0", "2", "-1.5"]), ("d", ["'f4'", "'i8'", "'f8'", "'c16'"]),
                         ("o", ["'C'", "'F'", "'A'", "'K'"])):  # fmt: skip
        line = line.replace(f"{{{place}}}", draw.choice(given))
    return line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [5, 20, *exhaustive(*range(5), *range(6, 20), *range(21, 40))])
def test_any_assignments_are_numpys(seed: int) -> None:
    draw, recordings = Random(seed), 0
    while recordings < 100:
        function, x = any_function(draw)
        found = examined(function, [Kind.OTHER], {})
        if found.reason is not None:
            continue
        with np.errstate(all="ignore"):
            try:
                recording = recorded(function, found.outside, x)
            except UnrecordableError:
                continue  # It runs on the arrays themselves.
            recordings += 1
            for given, result in ((x, recording.result), (x + 1, recording.run(x + 1))):
                assert_close(result, function(given), function.__doc__)


def assert_close(found: Any, expected: Any, told: str) -> None:
    """Assert equal types, dtypes and shapes, and values within rounding of float32."""
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, told)
        return
    assert type(found) is type(expected), told
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), told
    np.testing.assert_allclose(found, expected, 1e-5, 1e-4, err_msg=told)
