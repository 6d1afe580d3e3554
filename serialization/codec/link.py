"""What is known of the way that bytes take: how many of them pass in a second."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host

from gpusched import config

KEY = "gpusched-link"
"""Where a `Transfer` stands among what distributed knows of the receiver."""

_LEAST = 1 << 20
"""Bytes: shorter messages measure the delay more than the bandwidth."""
_MEMORY = 5
"""Observations that count."""


class Link:
    """A connection, or a disk.

    Parameters
    ----------
    bandwidth
        Bytes per second, until there are observations.
    most
        Bytes per second; observations above it count as this. A disk's page cache is faster than
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
        self._costs: deque[float] = deque(maxlen=_MEMORY)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Link {self.bandwidth / 1e6:.0f} MB/s, {self.observations} observations>"

    def observe(self, nbytes: int, seconds: float) -> None:
        """Take into account how long so many bytes took that were not compressed."""
        if nbytes < _LEAST or seconds <= 0:
            return
        with self._lock:
            self.observations += 1
            self._costs.append(seconds / nbytes)
            # In seconds a byte, so that a slow message counts for what it cost. One that had to
            # wait for something else is an exception, and compressing must not hang on it.
            self.bandwidth = min(1 / median(self._costs), self.most)

    def observe_least(self, nbytes: int, seconds: float) -> None:
        """Take into account so many bytes of which some of the time was not the link's.

        What was compressed is decompressed in a time that is only estimated, and is short beside
        all that is done for a message. So it shows what the link can do at least.
        """
        if seconds > 0 and nbytes / seconds > self.bandwidth:
            self.observe(nbytes, seconds)


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
    >>> link = Link(5e7)
    >>> transfer = Transfer(link)
    >>> transfer.prepared(now=20.0, decoding=0.5)
    >>> transfer.done(nbytes=100_000_000, begun=10.0, ended=21.5)
    >>> link
    <Link 100 MB/s, 1 observations>
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.ready: float | None = None
        """When the last of its buffers was ready to be sent, by `time.monotonic`."""
        self.decoding = 0.0
        """Seconds that decompressing it is expected to take."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.link.bandwidth

    @property
    def shares_cores(self) -> bool:
        """Whether both ends work on the same processor cores."""
        return self.link.shares_cores

    def prepared(self, now: float, decoding: float = 0.0) -> None:
        """Note that a buffer is ready to be sent, and how long decompressing it will take."""
        self.ready = now
        self.decoding += decoding

    def done(self, nbytes: int, begun: float, ended: float, beside: float = 1.0) -> None:
        """Note that it has arrived.

        Parameters
        ----------
        nbytes
            Sent.
        begun, ended
            When the first buffer was asked for, and when all were known to have arrived.
        beside
            How many messages were sent over the link, on average, while this one was; it included.
        """
        sending = ended - (begun if self.ready is None else self.ready)
        rest = sending - self.decoding
        # The others took their share of the link.
        observe = self.link.observe_least if self.decoding else self.link.observe
        observe(nbytes, rest / beside)


_SAME_HOST = 1.2e9
"""Bytes per second, as measured between two processes of one machine."""


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
