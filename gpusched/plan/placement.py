"""Whether chunks of NumPy programs are computed on a GPU: what a computation says of it."""

from __future__ import annotations

from gpusched.emit import choices

NUMPY, DRAWN = "numpy", "device"
"""Random numbers are NumPy's, or drawn by the GPU."""
AUTO, OFF, REQUIRE = "auto", "off", "require"
"""On the device where that pays, never, or always where there is something to gain."""


def placement() -> str:
    """Return where the chunks of a graph are computed which is optimised here.

    Raises
    ------
    ChoiceError
        If the configuration has something else than one of the three.

    Examples
    --------
    >>> import dask
    >>> from gpusched.plan.placement import placement
    >>> with dask.config.set({"gpusched.device": "require"}):
    ...     placement()
    'require'
    """
    return choices.word("device", (AUTO, OFF, REQUIRE))


def random_numbers() -> str:
    """Return who draws the random numbers of a graph which is optimised here.

    Raises
    ------
    ChoiceError
        If the configuration has something else than one of the two.

    Examples
    --------
    >>> from gpusched.plan.placement import random_numbers
    >>> random_numbers()
    'numpy'
    """
    return choices.word("random", (NUMPY, DRAWN))
