"""Running a raw kernel in the simulator."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np

from gpusched.backends.cuda.errors import SimulationError
from gpusched.backends.cuda.simulated_threads import Triple, run
from gpusched.kernels.definition import Definition, Value
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.simulation import simulated_cuda
from gpusched.kernels.simulation.watched_arrays import tracked


def simulate(
    definition: Definition, grid: Triple, extent: Triple, arguments: tuple[Any, ...],
    backwards: bool = False,
) -> None:  # fmt: skip
    """Run a kernel's threads in plain Python; arrays among the arguments are changed.

    Raises
    ------
    SimulationError
        At the first access that has no defined result on a GPU, with file and line.
    KernelError
        If the function raises an error, with file and line.
    """
    table = simulated_cuda.replacements()

    def target(value: Value) -> Value:
        if isinstance(value, Definition):
            return value.bind(target)
        return table.get(id(value), value)

    parameters = definition.function.__code__.co_varnames
    given = tuple(
        tracked(value, name) if isinstance(value, np.ndarray) else value
        for name, value in zip(parameters, arguments, strict=False)
    )
    with np.errstate(all="ignore"):
        try:
            run(definition.bind(target), grid, extent, given, backwards)
        except SimulationError:
            raise
        except Exception as error:
            raise _at_users_line(definition, error) from error


def _at_users_line(definition: Definition, error: Exception) -> KernelError:
    """Return an error of Python's as one that starts with the line of the kernel."""
    code, line = definition.function.__code__, None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code is code:
            line = number
    problem = f"{type(error).__name__}: {error}"
    return KernelError(f"{location(code, line)}: kernel {definition.name} fails: {problem}")
