"""The links over which a worker sends results, observed so that compression knows them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm
from distributed.protocol.serialize import to_serialize

from gpusched.serialization.arrays.sealed_results import Results
from gpusched.serialization.codec.link import KEY, Link, Peer, Transfer, usual
from gpusched.store.statistics import updating

Span = tuple[float, float]
_REMEMBERED = 8
"""Messages of a link that have arrived while others may still be on their way."""


def beside(own: Span, others: Iterable[Span]) -> float:
    """Return how many messages were on a link, on average, during one of them.

    Parameters
    ----------
    own, others
        When each was sent: from, until.

    Examples
    --------
    >>> from gpusched.workers.outgoing import beside
    >>> beside((0.0, 4.0), [(1.0, 3.0), (2.0, 9.0), (5.0, 6.0)])
    2.0
    """
    begun, ended = own
    if ended <= begun:
        return 1.0
    shared = (min(ended, until) - max(begun, since) for since, until in others)
    return 1 + sum(max(0.0, seconds) for seconds in shared) / (ended - begun)


class Traffic:
    """The messages of one link: those on their way, and the last that have arrived."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._going: dict[Transfer, float] = {}
        self._arrived: deque[Span] = deque(maxlen=_REMEMBERED)

    def begin(self, now: float, peer: Peer | None = None, largest: float = math.inf) -> Transfer:
        """Return a new message, for the GPU of `peer` if that copies from this one's memory."""
        transfer = Transfer(self.link, peer, largest)
        self._going[transfer] = now
        return transfer

    def end(self, transfer: Transfer, now: float, nbytes: int) -> None:
        """Note that a message has arrived, or that it will not, with 0 bytes."""
        begun = self._going.pop(transfer)
        # What waits to be compressed, or is being compressed, is not on the link.
        going = [(other.ready, now) for other in self._going if other.ready is not None]
        own = begun if transfer.ready is None else transfer.ready, now
        transfer.done(nbytes, begun, now, beside(own, [*self._arrived, *going]))
        self._arrived.append(own)


class Outgoing:
    """Links by the receiver's host.

    Notes
    -----
    Used on the worker's event loop.
    """

    def __init__(self) -> None:
        self.largest = math.inf
        """Bytes of an array above which there is no memory to compress it."""
        self._traffic: dict[str, Traffic] = {}

    @property
    def links(self) -> dict[str, Link]:
        """Links by host."""
        return {host: traffic.link for host, traffic in self._traffic.items()}

    @contextmanager
    def transfer(self, comm: Comm, peer: Peer | None = None) -> Iterator[Sent]:
        """Give serializers what is known of a connection while a message is written to it.

        Parameters
        ----------
        comm
            The connection.
        peer
            The way to the receiver's GPU, if that can copy from this one's memory.
        """
        host = get_address_host(comm.peer_address)
        if host not in self._traffic:
            self._traffic[host] = Traffic(usual(comm.local_address, comm.peer_address))
        traffic, sent = self._traffic[host], Sent()
        # Serializers get this very dictionary, and no other message takes the connection meanwhile.
        transfer = comm.remote_info[KEY] = traffic.begin(time.monotonic(), peer, self.largest)
        try:
            yield sent
        finally:
            comm.remote_info.pop(KEY, None)
            # The answer says that the receiver has copied them; without one it never will.
            transfer.release()
            if sent.nbytes:
                with updating() as counters:
                    counters.bytes_between_devices += transfer.direct
                    counters.bytes_through_host += transfer.through_host
            traffic.end(transfer, time.monotonic(), sent.nbytes)


class Checked:
    """A connection to another worker, on which results are one message with a checksum."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    async def write(self, message: Any, serializers: Any = None, **options: Any) -> Any:
        """Send what `distributed.Worker.get_data` sends."""
        data = {key: value.data for key, value in message["data"].items()}
        results = Results(data, serializers or ("dask", "pickle"))
        checked = {**message, "data": to_serialize(results)}
        return await self._comm.write(checked, serializers=serializers, **options)


def checked(comm: Comm, receiver: str | None) -> Any:
    """Return a connection that checks what it sends, where that is bytes for a worker.

    Clients need not have gpusched. Within a process nothing is written, and UCX sends what is in
    GPU memory from there.
    """
    if receiver and comm.peer_address.startswith(("tcp://", "tls://")):
        return Checked(comm)
    return comm


@dataclass
class Sent:
    """What became of a message."""

    nbytes: int = 0
    """How many of its bytes have arrived."""
