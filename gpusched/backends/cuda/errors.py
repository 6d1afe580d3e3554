"""What a simulated kernel does wrong; of a user's own, with file and line."""


class SimulationError(AssertionError):
    """A kernel does what has no defined result on a GPU."""


class DivergenceError(SimulationError):
    """Threads of one block did not meet at the same barrier."""


class GuardError(SimulationError):
    """A thread reads or writes beyond an array: a guard such as ``if i < x.size`` is missing."""


class RaceError(SimulationError):
    """Two threads use one element, at least one writes, and no barrier is between."""


class UninitialisedError(SimulationError):
    """A thread reads shared memory that no thread has written."""
