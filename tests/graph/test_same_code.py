"""Functions that are defined again share plans with those before, as long as they read the same."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph.programs.program import Program
from gpusched.graph.running import division
from gpusched.store.statistics import reset_statistics, statistics

ARRAY = np.random.default_rng(0).normal(size=(24, 40))
NUMBERS = 2.0, 2.0, 2.0, 2, np.float32(2), True, -0.0, 0.0

level: Any = 1


def doubled(x: Any) -> Any:
    return x + x


def rolled(x: Any) -> Any:
    return np.roll(x, 1, 0) * 2


def nested(inner: Any) -> Callable[[Any], Any]:
    """Return a function that calls one that is defined each time."""

    def helper(x: Any) -> Any:
        return inner(x) if x.ndim else helper(x[None])

    return helper


def made(factor: Any, offset: Any, helper: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return a function, and what changes a variable that it reads."""

    def function(x: Any, offset: Any = offset) -> Any:
        return np.cumsum(helper(x), axis=0) * factor + offset * level

    def change(value: Any) -> None:
        nonlocal factor
        factor = value

    return function, change


def scaled(x: Any) -> Any:
    """A call that can be made in the function's place, beside one that cannot."""
    return (x - 0.5) * 3


def compared(
    array: np.ndarray, function: Callable[[Any], Any], between: Callable[[], None] = lambda: None
) -> None:
    """Compare with NumPy what a function makes of chunks, after something was changed."""
    x = da.from_array(array, chunks=(12, 40)).map_blocks(scaled).map_blocks(function) + 1
    between()
    expected = [function(scaled(part)) + 1 for part in np.split(array, 2)]
    np.testing.assert_array_equal(x.compute(), np.concatenate(expected))


@pytest.fixture(params=["kernels", "blocks"])
def everywhere(
    request: pytest.FixtureRequest, everything_fused: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[np.ndarray]:
    """Run kernels, or calls on blocks that are as small as these chunks need."""
    if request.param == "kernels":
        request.getfixturevalue("no_compiler")
    monkeypatch.setattr(division, "TILE", 128)
    compiled = "wait" if request.param == "kernels" else "off"
    # No kernel is there for these in the other case.
    array = ARRAY if compiled == "wait" else ARRAY.astype("f4")
    with dask.config.set({"gpusched.fusion.compile": compiled, "scheduler": "sync"}):
        yield array


def test_functions_of_one_code_that_change(
    everywhere: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(4)
    pool: list[tuple[Any, Any]] = []

    def change() -> None:
        what, number = draw.randrange(4), draw.choice(NUMBERS)
        if what == 0:
            monkeypatch.setattr(sys.modules[__name__], "level", number)
        elif what == 1:
            draw.choice(pool)[0].__defaults__ = (number,)
        else:
            for _, change_factor in draw.sample(pool, len(pool) // 2):
                change_factor(number)

    for _ in range(40):
        if not pool or draw.random() < 0.6:
            numbers = draw.choices(NUMBERS, k=2)
            helper = draw.choice([doubled, rolled])
            helper = nested(helper) if draw.random() < 0.5 else helper
            pool.append(made(*numbers, helper))
        compared(everywhere, draw.choice(pool)[0], change)
        change()


def test_another_function_of_the_code_is_not_called(everywhere: np.ndarray) -> None:
    """It has read the same when its plan was made, and reads something else by now."""
    first, change = made(7.0, 1.5, doubled)
    compared(everywhere, first)
    change(5.0)
    compared(everywhere, made(7.0, 1.5, doubled)[0])


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_tasks_of_functions_that_are_defined_again_are_recorded_once() -> None:
    def computed(number: int) -> Any:
        x, helper = da.from_array(ARRAY, chunks=(12, 40)), nested(doubled)
        mapped = x.map_blocks(lambda part: helper(part) * number + level)
        return (mapped - 1).compute(scheduler="sync")

    computed(2)
    reset_statistics()
    np.testing.assert_array_equal(computed(2), ARRAY * 4 + 1 - 1)
    assert not statistics().recorded
    computed(3)
    assert sum(statistics().recorded.values()) == 1


class Counter:
    """A function that is not recorded, so that each task that is sent has its own."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


@pytest.mark.usefixtures("everything_fused", "no_compiler", "no_plans")
def test_tasks_that_are_sent_share_plans_of_what_follows_their_own_functions() -> None:
    number, helper = 3.0, nested(doubled)
    x = da.from_array(ARRAY, chunks=(12, 40)).map_blocks(Counter(), meta=ARRAY[:0])
    mapped = x.map_blocks(lambda part: helper(part) * number + np.sin(part)) + 1
    programs = [node.func for node in dask.optimize(mapped)[0].dask.values()
                if type(getattr(node, "func", None)) is Program]  # fmt: skip
    sent = cloudpickle.dumps(programs[0])
    reset_statistics()
    tasks = [pickle.loads(sent) for _ in range(4)]
    for task in tasks:
        np.testing.assert_array_equal(task(ARRAY), ARRAY * 2 * number + np.sin(ARRAY) + 1)
    assert sum(statistics().recorded.values()) == 1
