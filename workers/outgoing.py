"""The links over which a worker sends results, observed so that compression knows them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm

from gpusched.serialization.codec.link import KEY, Link, Transfer, usual


class Traffic:
    """How many messages are on one link, and the sum over time of how many there were.

    Examples
    --------
    >>> from gpusched.workers.outgoing import Traffic
    >>> traffic = Traffic()
    >>> traffic.change(+1, now=0.0)
    0.0
    >>> traffic.change(+1, now=3.0), traffic.change(-1, now=5.0)
    (3.0, 7.0)
    """

    def __init__(self) -> None:
        self._messages = 0
        self._total = 0.0
        self._since = 0.0

    def change(self, messages: int, now: float) -> float:
        """Count messages that begin, or end if negative; return message-seconds until now."""
        self._total += self._messages * (now - self._since)
        self._messages += messages
        self._since = now
        return self._total


class Outgoing:
    """Links by the receiver's host.

    Notes
    -----
    Used on the worker's event loop.
    """

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self._traffic: defaultdict[str, Traffic] = defaultdict(Traffic)

    @contextmanager
    def transfer(self, comm: Comm) -> Iterator[Transfer]:
        """Give serializers what is known of a connection while a message is written to it."""
        host = get_address_host(comm.peer_address)
        link = self.links.get(host)
        if link is None:
            link = self.links[host] = usual(comm.local_address, comm.peer_address)
        # Serializers get this very dictionary, and no other message takes the connection meanwhile.
        transfer = comm.remote_info[KEY] = Transfer(link)
        traffic, begun = self._traffic[host], time.monotonic()
        before = traffic.change(+1, begun)
        try:
            yield transfer
        finally:
            ended = time.monotonic()
            taken = traffic.change(-1, ended) - before
            transfer.beside = max(1.0, taken / (ended - begun)) if ended > begun else 1.0
            comm.remote_info.pop(KEY, None)
