"""What is known of the way that bytes take: how many of them pass in a second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host

from gpusched import config, forks

KEY = "gpusched-link"
"""Where a `Transfer` stands among what distributed knows of the receiver."""

LEAST = 1 << 20
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
        self._lock = forks.lock()

    def __repr__(self) -> str:
        return f"<Link {self.bandwidth / 1e6:.0f} MB/s, {self.observations} observations>"

    def observe(self, nbytes: int, seconds: float) -> None:
        """Take into account how long so many bytes took that were not compressed."""
        if nbytes < LEAST or seconds <= 0:
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


_FROM_GPU_TO_GPU = 1e10
"""Bytes per second that are assumed of copies from GPU to GPU: about half of what PCIe 4.0 has."""
_FEWEST = 3
"""Observations below which the assumption holds."""
_AGAIN = 50
"""Messages after which a way that was slower is tried again."""


class Peer(Link):
    """The way from this process's GPU to another one of the machine, which copies by itself.

    Examples
    --------
    >>> from gpusched.serialization.codec.link import Peer
    >>> peer = Peer()
    >>> [peer.is_due() for _ in range(100)].count(True)
    2
    """

    def __init__(self) -> None:
        super().__init__(_FROM_GPU_TO_GPU)
        self._passed = 0

    def observe(self, nbytes: int, seconds: float) -> None:
        """Take into account how long so many bytes took; the first messages alone say nothing.

        For those the receiver may have to load a library, or its GPU to open a context.
        """
        super().observe(nbytes, seconds)
        if self.observations < _FEWEST:
            self.bandwidth = _FROM_GPU_TO_GPU

    def is_due(self) -> bool:
        """Return whether a message for which it seems slower takes it, to find out."""
        with self._lock:
            self._passed += 1
            return self._passed % _AGAIN == 0


class Transfer:
    """One message on its way over a link.

    Parameters
    ----------
    link
        Which it takes.
    peer
        What GPU memory may take instead; None if the receiver cannot copy it.
    largest
        Bytes of a buffer above which there is no memory to compress it.

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

    def __init__(self, link: Link, peer: Peer | None = None, largest: float = math.inf) -> None:
        self.link = link
        self.peer = peer
        self.largest = largest
        self.through_host = 0
        """Bytes of GPU memory that were copied to the host for it."""
        self.direct = 0
        """Bytes of GPU memory that the receiver copies itself."""
        self._held: list[Any] = []
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

    def hold(self, data: Any) -> None:
        """Keep a buffer in GPU memory until the receiver has copied it."""
        self._held.append(data)
        self.direct += data.nbytes

    def release(self) -> None:
        """Let go of the buffers: the receiver has copied them, or never will."""
        self._held.clear()

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
        if nbytes and self.peer is not None and self.direct > nbytes:
            self.peer.observe(self.direct, sending / beside)
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
