"""Servers for clusters inside one process: distributed's own, without their HTTP sockets."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler
from distributed.http.routing import RoutingApplication
from tornado.httpserver import HTTPServer

from gpusched.workers.worker import DeviceWorker


class _NoHttp:
    http_application: RoutingApplication
    http_server: HTTPServer

    def start_http_server(self, routes: Any, *args: Any, **kwargs: Any) -> None:
        """Build the HTTP application as usual, and listen nowhere."""
        self.http_application = RoutingApplication(routes)
        self.http_server = HTTPServer(self.http_application)


class SilentScheduler(_NoHttp, Scheduler):
    """A scheduler that opens no port but the address it is given."""


class SilentWorker(_NoHttp, DeviceWorker):
    """A worker that opens no port but the address it is given."""
