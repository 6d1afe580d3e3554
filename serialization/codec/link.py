"""What is known of the way that bytes take: how many of them pass in a second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host

from gpusched import config

KEY = "gpusched-link"
"""Where a `Link` stands among what distributed knows of the receiver."""

_LEAST = 1 << 20
"""Bytes: shorter messages tell more of the delay than of the bandwidth."""
_MEMORY = 4
"""Observations after which an older one weighs a third."""


class Link:
    """A connection, or a disk.

    Parameters
    ----------
    bandwidth
        Bytes a second, until there are observations.
    most
        Bytes a second; observations above it count as this. A disk's page cache is faster than
        the disk, for one.

    Notes
    -----
    Thread-safe.

    Examples
    --------
    >>> from gpusched.serialization.codec.link import Link
    >>> link = Link(bandwidth=1e9)
    >>> link.observe(nbytes=100_000_000, seconds=1.0)
    >>> link.bandwidth
    100000000.0
    """

    def __init__(self, bandwidth: float, most: float = float("inf")) -> None:
        self.bandwidth = float(bandwidth)
        self.most = most
        self.observations = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Link {self.bandwidth / 1e6:.0f} MB/s, {self.observations} observations>"

    def observe(self, nbytes: int, seconds: float) -> None:
        """Take into account how long so many bytes were on their way, without coding them."""
        if nbytes < _LEAST or seconds <= 0:
            return
        with self._lock:
            # The mean is over seconds a byte, so that a slow message counts for what it cost.
            weight = 1 / min(self.observations + 1, _MEMORY)
            cost = (1 - weight) / self.bandwidth + weight * seconds / nbytes
            self.bandwidth = min(1 / cost, self.most)
            self.observations += 1


_SAME_HOST = Link(bandwidth=1.2e9)
"""Measured between two processes of one machine, for want of an observation."""


def to(context: Mapping[str, Any]) -> Link:
    """Return the link to a receiver, from what distributed knows of the connection.

    That is the one that the worker observes where there is such, else one of the bandwidth that
    is usual within a machine or that ``gpusched.serialization.bandwidth`` says.
    """
    recipient = context.get("recipient") or {}
    found: Link | None = recipient.get(KEY)
    if found is not None:
        return found
    addresses = [place.get("address", "") for place in (context.get("sender") or {}, recipient)]
    hosts = {get_address_host(address) if address else "" for address in addresses}
    if len(hosts) == 1:
        return _SAME_HOST
    return Link(parse_bytes(config.get("serialization.bandwidth")))
