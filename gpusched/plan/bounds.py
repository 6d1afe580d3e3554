"""What of a task is worth a kernel: settings that go with a program to where it runs."""

from __future__ import annotations

from typing import NamedTuple

from dask.utils import parse_bytes

from gpusched import config
from gpusched.emit.choices import ChoiceError


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
    ChoiceError
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
        _single(),
        config.get("fusion.maximum-operations"),
    )


def _single() -> int:
    setting = config.get("fusion.single-operation-bytes")
    try:
        return int(parse_bytes(setting or 0))
    except (TypeError, ValueError, AttributeError):
        raise ChoiceError(
            f"gpusched.fusion.single-operation-bytes is {setting!r}: it takes a number of bytes, "
            f"such as 4 MiB, or null"
        ) from None
