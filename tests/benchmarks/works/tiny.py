"""Graphs of 10,000 and of 100,000 tasks that do next to nothing: what is left is overhead."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work

ELEMENTS = 100
"""Elements of a chunk."""


def size(count: int, dtype: str) -> list[np.ndarray]:
    """Return the number of elements: making them is the tasks' own work."""
    return [np.array(count)]


def total(x: Any) -> Any:
    """Return the sum of a short chain: a task a chunk, and a quarter as many that add."""
    return ((x + 1) * 2).sum()


def _work(tasks: int) -> Work:
    return Work(
        f"tiny-{tasks // 1000}k",
        f"{tasks:,} tiny tasks",
        f"W11 {tasks:,} tasks on chunks of {ELEMENTS} elements, and their sum",
        size,
        lambda xp, count: total(xp.full(int(count), 0.5)),
        elements={"float64": tasks * ELEMENTS},
        chunk=ELEMENTS,
        programs={"dask": lambda xp, count: total(xp.full(int(count), 0.5, chunks=ELEMENTS))},
        absent=dict.fromkeys(
            ("numpy", "numexpr", "numba", "jax", "torch", "triad", "copy"),
            "it has no tasks, and these elements take it a few milliseconds",
        )
        | {"cubed": "every task goes through storage: minutes"}
        | {"dask-numexpr": "the tasks are dask's, and there is nothing to compute"},
        tolerance=4096,
        fused=False,
    )


TEN, HUNDRED = _work(10_000), _work(100_000)
