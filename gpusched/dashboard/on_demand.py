"""A dashboard that starts when somebody first asks for one of its pages."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from distributed import Scheduler
from tornado import web

from gpusched.dashboard.page_registration import register, show


def show_on_demand(scheduler: Scheduler) -> None:
    """Have a scheduler that has started without a dashboard start it for the first request.

    Bokeh takes a second to import, and most clusters are never looked at.

    Parameters
    ----------
    scheduler
        One whose HTTP server runs. Its other pages, such as ``/health``, stay as they are.
    """
    starter = web.Application()
    starter.add_handlers(r".*", [(r"/.*", _Start, {"scheduler": scheduler, "starter": starter})])
    scheduler.http_application.add_application(starter)


class _Start(web.RequestHandler):
    """Starts the dashboard, and sends whoever asked to the same page once more."""

    def initialize(self, scheduler: Scheduler, starter: web.Application) -> None:
        self._scheduler = scheduler
        self._starter = starter

    async def get(self) -> None:
        dashboard = await asyncio.to_thread(
            importlib.import_module, "distributed.dashboard.scheduler"
        )
        await asyncio.to_thread(register)
        applications = self._scheduler.http_application.applications
        # Of two requests that came at the same time, the first one has started it.
        if self._starter in applications:
            applications.remove(self._starter)
            _start(self._scheduler, dashboard)
        path, question, query = (self.request.uri or "/").partition("?")
        # Relative, since a proxy may have moved all pages, and "//host" would lead to another host.
        self.redirect(f"./{path.rpartition('/')[2]}{question}{query}")


def _start(scheduler: Scheduler, dashboard: Any) -> None:
    dashboard.connect(scheduler.http_application, scheduler.http_server, scheduler, prefix="/")
    show(scheduler)
