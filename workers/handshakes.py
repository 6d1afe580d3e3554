"""A time limit for connections that never say who they are: they would stay open forever.

distributed gives those who connect a limit, and waits for them without one itself
(``distributed.comm.tcp.BaseTCPListener._handle_stream``, whose parts are limited here).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from dask.utils import parse_timedelta
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import BaseTCPListener
from distributed.core import Server
from tornado.httpserver import HTTPServer

from gpusched import config
from gpusched.adapters.distributed import replace_preparation

logger = logging.getLogger(__name__)


def limit_handshakes(server: Server) -> None:
    """Close connections to a server that have not introduced themselves in time."""
    seconds = _seconds()
    for listener in server.listeners:
        if seconds and isinstance(listener, BaseTCPListener):
            _limit(listener, seconds)


def limit_requests(pages: HTTPServer) -> None:
    """Close connections to a server of pages that ask for none in time, as `limit_handshakes` does.

    What has become a web socket stays open.
    """
    pages.conn_params.header_timeout = _seconds() or pages.conn_params.header_timeout


def _seconds() -> float:
    return float(parse_timedelta(config.get("cluster.handshake-timeout")))


def _limit(listener: Any, seconds: float) -> None:
    introduce = listener.on_connection

    def in_time(prepare: Any) -> Any:
        async def prepare_in_time(stream: Any, address: str) -> Any:
            """Wait for the encryption to be agreed on."""
            try:
                async with asyncio.timeout(seconds):
                    return await prepare(stream, address)
            except TimeoutError:
                logger.info("connection from %s: no encryption within %g s", address, seconds)
                stream.close()
                return None

        return prepare_in_time

    async def introduce_in_time(comm: Any, handshake_overrides: Any = None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await introduce(comm, handshake_overrides)
        except TimeoutError:
            comm.abort()
            raise CommClosedError(f"no handshake within {seconds:g} s") from None

    replace_preparation(listener, in_time)
    listener.on_connection = introduce_in_time
