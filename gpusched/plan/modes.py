"""How a computation wants to be run: settings that are read where a graph is optimised.

They go with its programs to wherever these run, as part of `gpusched.plan.overrides.Overrides`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from gpusched import config
from gpusched.emit import choices
from gpusched.emit.kernel import EXACT, FAST, Kernel
from gpusched.quantities import read_bytes

MATHEMATICS = (EXACT, FAST)
"""How exact a kernel's mathematics is."""
NUMPY, DRAWN = "numpy", "device"
"""Random numbers are NumPy's, or drawn by the GPU."""
AUTO, OFF, REQUIRE = "auto", "off", "require"
"""On the device where that pays, never, or always where there is something to gain."""

_FLOATING = ("float16", "float32", "float64")


class Bounds(NamedTuple):
    """What of a task is worth a kernel: settings, by their defaults."""

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
    >>> from gpusched.plan.modes import bounds
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


def checked(mode: Any, where: str) -> str:
    """Return a mode of mathematics; `ValueError` for anything else, with `where` it was found.

    Examples
    --------
    >>> from gpusched.plan.modes import checked
    >>> checked("fast", "mathematics")
    'fast'
    """
    if mode not in MATHEMATICS:
        raise ValueError(f"{where} is {mode!r}: say 'exact' or 'fast'")
    return str(mode)


def mathematics() -> str:
    """Return how exact kernels' mathematics is where this is called.

    Examples
    --------
    >>> from gpusched.plan.modes import mathematics
    >>> mathematics()
    'exact'
    """
    found = config.get("fusion.mathematics")
    return EXACT if found == EXACT else checked(found, "gpusched.fusion.mathematics")


def applied(kernel: Kernel, mode: str) -> Kernel:
    """Return a kernel whose mathematics is so exact; the same one where that is no difference."""
    if mode == EXACT or not any(s.dtype in _FLOATING for s in kernel.statements):
        return kernel
    return replace(kernel, mathematics=mode)


def placement() -> str:
    """Return where the chunks of NumPy programs are computed: one of `AUTO`, `OFF`, `REQUIRE`.

    Raises
    ------
    ChoiceError
        If the configuration has something else than one of the three.

    Examples
    --------
    >>> import dask
    >>> from gpusched.plan.modes import placement
    >>> with dask.config.set({"gpusched.device": "require"}):
    ...     placement()
    'require'
    """
    return choices.word("device", (AUTO, OFF, REQUIRE))


def random_numbers() -> str:
    """Return who draws random numbers: `NUMPY`, or the GPU (`DRAWN`).

    Raises
    ------
    ChoiceError
        If the configuration has something else than one of the two.

    Examples
    --------
    >>> from gpusched.plan.modes import random_numbers
    >>> random_numbers()
    'numpy'
    """
    return choices.word("random", (NUMPY, DRAWN))
