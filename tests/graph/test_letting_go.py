"""A program holds what it has computed only as long as one of its calls still reads it."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

SIZE = 10_000


class Watch:
    """Notes how many of the results that it has given are alive at each of its calls."""

    def __init__(self) -> None:
        self.given: list[weakref.ref[Any]] = []
        self.alive: list[int] = []

    def __call__(self, x: Any) -> Any:
        self.alive.append(sum(each() is not None for each in self.given))
        result = np.negative(x)
        self.given.append(weakref.ref(result))
        return result


def chain(*functions: tuple[Callable[..., Any], bool]) -> Program:
    """Return a program that applies one function after the other, each recorded or not."""
    steps = [
        ProgramStep(function, (Register(number), 2.0)[: 2 if recorded else 1], {}, recorded)
        for number, (function, recorded) in enumerate(functions)
    ]
    return Program(tuple(steps), 1)


@pytest.mark.parametrize("minimum", [0, 10**9], ids=["fused", "not-fused"])
def test_what_kernels_and_calls_no_longer_need_is_let_go(minimum: int) -> None:
    watch = Watch()
    fused = (operator.mul, True), (operator.add, True)
    with dask.config.set({"gpusched.fusion.minimum-elements": minimum}):
        program = chain(*fused, (watch, False), *fused, (watch, False), *fused, (watch, False))
        for _ in range(3):
            program(np.ones(SIZE))
    assert watch.alive == [0] * len(watch.alive) and len(watch.alive) == 9


def test_a_call_among_others_holds_what_it_reads_only() -> None:
    watch = Watch()
    chain(*[(watch, False)] * 5)(np.ones(SIZE))
    assert watch.alive == [0, 1, 1, 1, 1]


def test_what_is_read_again_later_stays() -> None:
    steps = (
        ProgramStep(np.sort, (Register(0),)),
        ProgramStep(np.multiply, (Register(1), 2.0), {}, True),
        ProgramStep(np.add, (Register(2), 1.0), {}, True),
        ProgramStep(np.sort, (Register(3),)),
        ProgramStep(np.subtract, (Register(4), Register(1)), {}, True),
        ProgramStep(np.add, (Register(5), Register(0)), {}, True),
    )
    x = np.random.default_rng(0).random(SIZE)
    ordered = np.sort(x)
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        for _ in range(3):
            found = Program(steps, 1)(x)
            np.testing.assert_allclose(found, np.sort(ordered * 2 + 1) - ordered + x)
