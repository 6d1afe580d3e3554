"""What a simulated kernel does wrong, with file and line."""

from __future__ import annotations

from gpusched.backends.cuda.errors import DivergenceError, SimulationError

__all__ = ["DivergenceError", "GuardError", "RaceError", "SimulationError", "UninitialisedError"]


class GuardError(SimulationError):
    """A thread reads or writes beyond an array: a guard such as ``if i < x.size`` is missing."""


class RaceError(SimulationError):
    """Two threads use one element, at least one writes, and no barrier is between."""


class UninitialisedError(SimulationError):
    """A thread reads shared memory that no thread has written."""
