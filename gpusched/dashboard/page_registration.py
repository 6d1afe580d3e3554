"""Gives the pages to distributed's dashboard, once that is about to start."""

from __future__ import annotations

import sys
from typing import Any

import dask.config
from distributed import Scheduler

PAGE = "gpusched"
"""The page that the bar above all pages has a link to; it leads to the others."""

_SETTING = "distributed.scheduler.http.routes"
_ROUTES = "gpusched.dashboard.routes"


def offer() -> None:
    """Have the dashboards of this process's schedulers show the pages; idempotent.

    A scheduler asks the modules of a setting for their routes, after it has imported its dashboard
    and before it starts that. `gpusched.dashboard.routes` registers the plots then, in time for
    the list that JupyterLab's extension reads.

    Examples
    --------
    >>> import dask.config
    >>> from gpusched.dashboard.page_registration import offer
    >>> offer()
    >>> dask.config.get("distributed.scheduler.http.routes").count("gpusched.dashboard.routes")
    1
    """
    routes = dask.config.get(_SETTING)
    if _ROUTES not in routes:
        dask.config.set({_SETTING: [*routes, _ROUTES]})


def register() -> bool:
    """Put the plots among those of distributed, if that has imported its dashboard; idempotent.

    Returns
    -------
    bool
        Whether it has.
    """
    dashboard: Any = sys.modules.get("distributed.dashboard.scheduler")
    if dashboard is None:
        return False
    from gpusched.dashboard.pages import APPLICATIONS

    dashboard.applications.update(APPLICATIONS)
    return True


def show(scheduler: Scheduler) -> bool:
    """Link the pages from the bar above all pages, and keep what workers report for them.

    The bar has one link more, and its list under "More..." all of them: with four more, it would
    take two lines in a window of 1,280 pixels, and cover the top of every page.

    Returns
    -------
    bool
        Whether it has a dashboard.
    """
    if not _is_shown(scheduler):
        return False
    from distributed.dashboard.scheduler import template_variables

    from gpusched.dashboard.components.navigation import TITLES
    from gpusched.dashboard.observer import Observer

    bar: dict[str, Any] = template_variables(scheduler)
    bar["pages"].insert(1, PAGE)
    bar["plots"] += [{"url": address, "name": title} for address, title in TITLES.items()]
    for plot in bar["plots"]:
        plot["name"] = plot["name"].replace("GPUsched", "Gpusched")
    bar["plots"].sort(key=lambda plot: plot["name"])
    scheduler.add_plugin(Observer(scheduler))
    return True


def _is_shown(scheduler: Scheduler) -> bool:
    """Return whether a scheduler's dashboard has started, with the pages."""
    if "distributed.dashboard.scheduler" not in sys.modules:
        return False
    from bokeh.server.tornado import BokehTornado

    found = [
        application
        for application in scheduler.http_application.applications
        if isinstance(application, BokehTornado)
    ]
    return any(f"/{PAGE}" in application.app_paths for application in found)
