"""Whether chunks of NumPy programs are computed on a GPU: what a computation says of it."""

from __future__ import annotations

from gpusched import config
from gpusched.fusion.choices import ChoiceError

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
    >>> from gpusched.fusion.placement import placement
    >>> with dask.config.set({"gpusched.device": "require"}):
    ...     placement()
    'require'
    """
    found = config.get("device")
    found = OFF if found is False else found  # What YAML takes the word for, without quotes.
    if found not in (AUTO, OFF, REQUIRE):
        raise ChoiceError(f"gpusched.device is {found!r}: it takes 'auto', 'off' or 'require'")
    return str(found)
