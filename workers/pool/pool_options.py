"""What ``--pool`` and ``--pool-size`` ask for, read before anything starts."""

from __future__ import annotations

from dask.utils import format_bytes

from gpusched.quantities import read_bytes

KINDS = ("none", "cupy", "async", "rmm")
"""What ``--pool`` can be."""

LEAST = 1 << 20
"""Bytes; the driver gives no less, and a number below it is a size without its unit."""


def read_request(kind: str, size: int | str | None = None) -> int | None:
    """Return a pool's size in bytes, after checking what can be checked without a device.

    Raises `ValueError` if the kind is unknown, or the size is not a number of bytes that this kind
    can have.

    Examples
    --------
    >>> from gpusched.workers.pool import read_request
    >>> read_request("cupy", "2 GiB")
    2147483648
    """
    if kind not in KINDS:
        raise ValueError(f"--pool {kind} is none of {', '.join(map(repr, KINDS))}")
    if size is None:
        return None
    nbytes = read_bytes("--pool-size", size, LEAST)
    if kind == "none":
        raise ValueError(
            f"--pool-size {size} has no meaning with --pool none, which keeps nothing: leave it "
            f"out, or choose --pool cupy, async or rmm"
        )
    return nbytes


def check_fits(kind: str, size: int, free: int, total: int) -> None:
    """Check a pool's size against the device's free and total memory, in bytes.

    Raises `ValueError` if the device cannot give that much.
    """
    if size > total:
        raise ValueError(
            f"--pool-size {format_bytes(size)} is more than the {format_bytes(total)} that the "
            f"device has: ask for less, or leave it out"
        )
    if kind == "rmm" and size > free:
        raise ValueError(
            f"--pool-size {format_bytes(size)} cannot be taken at once: {format_bytes(free)} of "
            f"the device's {format_bytes(total)} are free. Ask for less, or end what uses the "
            f"rest (nvidia-smi lists it)"
        )
