"""Who connects and says nothing is hung up on, and nobody else is."""

from __future__ import annotations

import asyncio

import dask
from distributed import rpc
from distributed.core import Server
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from gpusched.workers.handshakes import limit_handshakes, limit_requests


async def _closed(server: Server) -> None:
    host, port = server.address.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    # What the server says first, and then the end of the connection.
    await asyncio.wait_for(reader.read(), timeout=30)
    writer.close()


def test_connections_that_say_nothing_are_closed() -> None:
    async def run() -> None:
        server = Server({"double": lambda number: 2 * number})
        await server.listen("tcp://127.0.0.1:0")
        limit_handshakes(server)
        await _closed(server)
        async with rpc(server.address) as peer:
            assert await peer.double(number=4) == 8
        await server.close()

    with dask.config.set({"gpusched.cluster.handshake-timeout": "0.3s"}):
        asyncio.run(run())


def test_connections_for_pages_that_ask_for_none_are_closed() -> None:
    async def run() -> None:
        pages = HTTPServer(Application())
        (listening,) = bind_sockets(0, "127.0.0.1")
        pages.add_sockets([listening])
        limit_requests(pages)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        assert await asyncio.wait_for(reader.read(), timeout=30) == b""
        writer.close()
        pages.stop()

    with dask.config.set({"gpusched.cluster.handshake-timeout": "0.3s"}):
        asyncio.run(run())


def test_no_limit_is_set_where_none_is_wanted() -> None:
    async def run() -> None:
        server = Server({})
        await server.listen("tcp://127.0.0.1:0")
        before = server.listeners[0].on_connection
        limit_handshakes(server)
        assert server.listeners[0].on_connection == before
        await server.close()

    with dask.config.set({"gpusched.cluster.handshake-timeout": 0}):
        asyncio.run(run())
