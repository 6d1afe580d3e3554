"""What of a task is worth a kernel: settings that go with a program to where it runs."""

from __future__ import annotations

from typing import NamedTuple

from gpusched import config
from gpusched.quantities import read_bytes


class Bounds(NamedTuple):
    """Settings of the process in which a graph is optimised, by their defaults."""

    elements: int = 4096
    """``minimum-elements``: of the largest chunk."""
    operations: int = 2
    """``minimum-operations``: of a task."""
    single: int = 4 << 20
    """``single-operation-bytes``; 0 where no single operation becomes a kernel."""
    most: int = 256
    """``maximum-operations``: of a kernel."""


DEFAULT = Bounds()


def bounds() -> Bounds:
    """Return what the configuration has here.

    Raises
    ------
    ValueError
        If ``gpusched.fusion.single-operation-bytes`` is not a number of bytes.

    Examples
    --------
    >>> import dask
    >>> from gpusched.plan.bounds import bounds
    >>> with dask.config.set({"gpusched.fusion.minimum-operations": 3}):
    ...     bounds()
    Bounds(elements=4096, operations=3, single=4194304, most=256)
    """
    return Bounds(
        config.get("fusion.minimum-elements"),
        config.get("fusion.minimum-operations"),
        read_bytes(
            "gpusched.fusion.single-operation-bytes",
            config.get("fusion.single-operation-bytes") or 0,
        ),
        config.get("fusion.maximum-operations"),
    )
