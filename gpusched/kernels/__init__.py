"""Kernels that users write themselves, in plain Python."""

from gpusched.kernels.decorator import kernel
from gpusched.kernels.errors import KernelError
from gpusched.kernels.simulation.errors import (
    DivergenceError,
    GuardError,
    RaceError,
    SimulationError,
    UninitialisedError,
)

__all__ = [
    "DivergenceError",
    "GuardError",
    "KernelError",
    "RaceError",
    "SimulationError",
    "UninitialisedError",
    "kernel",
]
