"""Numbers for people."""

from __future__ import annotations

from dask.utils import format_bytes


def bytes_(number: float) -> str:
    """Return a number of bytes in the unit that suits it.

    Examples
    --------
    >>> from gpusched.inspection.units import bytes_
    >>> bytes_(1536)
    '1.50 kiB'
    """
    return format_bytes(int(number))


def flow(rate: float) -> str:
    """Return a rate in bytes per second.

    Examples
    --------
    >>> from gpusched.inspection.units import flow
    >>> flow(14.2e9)
    '14.2 GB/s'
    """
    return f"{rate / 1e9:.3g} GB/s"


def seconds(number: float) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> from gpusched.inspection.units import seconds
    >>> seconds(0.00234), seconds(75)
    ('2.3 ms', '75 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if number >= scale:
            return f"{number / scale:.0f} {unit}" if number >= 10 * scale else (
                f"{number / scale:.1f} {unit}"
            )  # fmt: skip
    return f"{number / 1e-9:.0f} ns"


def shape(lengths: tuple[int, ...]) -> str:
    """Return a shape.

    Examples
    --------
    >>> from gpusched.inspection.units import shape
    >>> shape((500, 20)), shape(())
    ('500 x 20', 'scalar')
    """
    return " x ".join(map(str, lengths)) or "scalar"
