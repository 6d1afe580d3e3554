"""What is known of the way that bytes take: how many of them pass in a second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host

from gpusched import config

KEY = "gpusched-link"
"""Where a `Transfer` stands among what distributed knows of the receiver."""

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
    shares_cores
        Whether both ends work on the same processor cores.

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

    def __init__(
        self, bandwidth: float, most: float = float("inf"), shares_cores: bool = False
    ) -> None:
        self.bandwidth = float(bandwidth)
        self.most = most
        self.shares_cores = shares_cores
        self.observations = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Link {self.bandwidth / 1e6:.0f} MB/s, {self.observations} observations>"

    def observe(self, nbytes: int, seconds: float, certainty: float = 1.0) -> None:
        """Take into account how long so many bytes were on their way, without coding them.

        Parameters
        ----------
        nbytes, seconds
            What was observed.
        certainty
            Up to 1, lower the more of it rests on an estimate; how much it counts.
        """
        if nbytes < _LEAST or seconds <= 0:
            return
        with self._lock:
            # The mean is over seconds a byte, so that a slow message counts for what it cost.
            weight = certainty / min(self.observations + 1, _MEMORY)
            cost = (1 - weight) / self.bandwidth + weight * seconds / nbytes
            self.bandwidth = min(1 / cost, self.most)
            self.observations += 1


class Transfer:
    """One message on its way over a link.

    Parameters
    ----------
    link
        Which it takes.

    Notes
    -----
    Used by the thread that serializes the message, and after that by the one that sends it.

    Examples
    --------
    >>> from gpusched.serialization.codec.link import Link, Transfer
    >>> link = Link(1e8)
    >>> transfer = Transfer(link)
    >>> transfer.coding += 0.5
    >>> transfer.done(nbytes=100_000_000, seconds=1.5)
    >>> link
    <Link 100 MB/s, 1 observations>
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.beside = 1.0
        """How many messages were on the link, on average, while this one was; it included."""
        self.coding = 0.0
        """Seconds that compressing it took, and that decompressing it is expected to take."""

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.link.bandwidth

    @property
    def shares_cores(self) -> bool:
        """Whether both ends work on the same processor cores."""
        return self.link.shares_cores

    def done(self, nbytes: int, seconds: float) -> None:
        """Note how many bytes it took, and how long from the first step to the last."""
        rest = seconds - self.coding
        if rest > 0:
            # Of a message that was mostly coded, it is mostly the error of that estimate.
            # The others took their share of the link.
            self.link.observe(nbytes, rest / self.beside, certainty=rest / seconds)


_SAME_HOST = 1.2e9
"""Bytes a second, as measured between two processes of one machine."""


def usual(sender: str, recipient: str) -> Link:
    """Return a link between two addresses, of which nothing has been observed.

    Examples
    --------
    >>> from gpusched.serialization.codec.link import usual
    >>> usual("tcp://10.0.0.1:80", "tcp://10.0.0.1:81"), usual("tcp://10.0.0.1:80", "tcp://b:81")
    (<Link 1200 MB/s, 0 observations>, <Link 120 MB/s, 0 observations>)
    """
    hosts = {get_address_host(address) if address else "" for address in (sender, recipient)}
    if len(hosts) == 1:
        return Link(_SAME_HOST, shares_cores=True)
    return Link(parse_bytes(config.get("serialization.bandwidth")))


def to(context: Mapping[str, Any]) -> Link | Transfer:
    """Return the link to a receiver, from what distributed knows of the connection.

    That is the transfer that the worker has put there, else the usual link.
    """
    sender, recipient = context.get("sender") or {}, context.get("recipient") or {}
    found: Link | Transfer | None = recipient.get(KEY)
    return found or usual(sender.get("address", ""), recipient.get("address", ""))
