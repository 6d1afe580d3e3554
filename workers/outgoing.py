"""The links over which a worker sends results, observed so that compression knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm

from gpusched.serialization.codec.link import KEY, Link, Transfer, usual


class Outgoing:
    """Links by the receiver's host.

    Notes
    -----
    Used on the worker's event loop.
    """

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    @contextmanager
    def transfer(self, comm: Comm) -> Iterator[Transfer]:
        """Give serializers what is known of a connection while a message is written to it."""
        host = get_address_host(comm.peer_address)
        link = self.links.get(host)
        if link is None:
            link = self.links[host] = usual(comm.local_address, comm.peer_address)
        # Serializers get this very dictionary, and no other message takes the connection meanwhile.
        transfer = comm.remote_info[KEY] = Transfer(link)
        try:
            yield transfer
        finally:
            comm.remote_info.pop(KEY, None)
