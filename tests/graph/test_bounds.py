"""What is worth a kernel is what the configuration says where a graph is optimised."""

from __future__ import annotations

import operator

import dask
import numpy as np
import pytest

import gpusched
from gpusched import config
from gpusched.graph.programs.payload import pack, unpack
from gpusched.graph.programs.program import Program
from gpusched.plan.overrides import Bounds, bounds
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

STEPS = (
    ProgramStep(operator.mul, (Register(0), 2.0), {}, True),
    ProgramStep(operator.add, (Register(1), 1.0), {}, True),
    ProgramStep(operator.mul, (Register(2), 0.5), {}, True),
)


def test_defaults_are_those_of_the_configuration() -> None:
    with dask.config.set({"gpusched": config.defaults()["gpusched"]}):
        assert bounds() == Bounds()


@pytest.mark.parametrize(
    ("setting", "value", "launches"),
    [("minimum-elements", 8, 1), ("minimum-elements", 9, 0), ("minimum-operations", 4, 0),
     ("maximum-operations", 1, 2)],
)  # fmt: skip
def test_a_program_keeps_what_was_said(setting: str, value: int, launches: int) -> None:
    said = {"gpusched.fusion.minimum-elements": 8, f"gpusched.fusion.{setting}": value}
    with dask.config.set(said):
        program = Program(STEPS, 1)
        token = program.payload()[0]
    there = Program(*unpack(pack(STEPS, 1, program.overrides)))
    assert there.payload()[0] == token != Program(STEPS, 1).payload()[0]
    for each in (program, there):
        assert launched(each) == launches


def launched(program: Program) -> int:
    """Return the launches of a run of a program."""
    gpusched.reset_statistics()
    x = np.arange(8.0)
    np.testing.assert_array_equal(program(x), x + 0.5)
    return gpusched.statistics().launches
