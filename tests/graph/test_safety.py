"""What is shown safe for lazy chunks, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusched.graph.safety import why_unsafe

FACTOR = 2.5
TABLE = np.arange(5)


def helper(x: Any) -> Any:
    return np.exp(-x)


def stencil(z: Any) -> Any:
    dx = z[1:-1, 2:] - z[1:-1, :-2]
    return np.hypot(dx, dx * FACTOR).astype(np.float32)


def with_options(x: Any, scale: float = 2.0, axis: int = 0) -> Any:
    return (x * scale).sum(axis=axis, keepdims=True)


def loops(x: Any) -> Any:
    total = x
    for _ in range(3):
        total = total + helper(x)
    return total


def ignoring(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log(x)


def adds_in_place(x: Any) -> Any:
    total = x + 1
    total += x
    return total


@pytest.mark.parametrize(
    "function", [stencil, with_options, loops, ignoring, lambda x: x + 1, adds_in_place]
)
def test_safe(function: Any) -> None:
    assert why_unsafe(function) is None


def assigns(x: Any) -> Any:
    x[0] = 1
    return x


def asks_type(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x + 1


def converts(x: Any) -> Any:
    return np.asarray(x) + 1


def random(x: Any) -> Any:
    return x + np.random.random()


def reads_table(x: Any) -> Any:
    return x + TABLE


def prints(x: Any) -> Any:
    print(x)
    return x


def imports(x: Any) -> Any:
    import math

    return x * math.pi


def remembers(x: Any, seen: list[Any] = []) -> Any:  # noqa: B006
    seen.append(x)
    return x


def even(x: Any, n: int = 2) -> Any:
    return x if n == 0 else odd(x, n - 1)


def odd(x: Any, n: int = 1) -> Any:
    return x + 1 if n == 0 else even(x, n - 1)


@pytest.mark.parametrize(
    "function",
    [assigns, asks_type, converts, random, reads_table, prints, imports, remembers, even,
     np.linalg.svd, len],
)  # fmt: skip
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function)
