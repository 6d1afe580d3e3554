"""What a simulated kernel does wrong."""


class SimulationError(AssertionError):
    """A kernel does what has no defined result on a GPU."""


class DivergenceError(SimulationError):
    """Threads of one block did not meet at the same barrier."""
