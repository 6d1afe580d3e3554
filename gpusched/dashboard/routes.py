"""Asked for its routes by each scheduler that starts: the moment to register the pages."""

from __future__ import annotations

from typing import Any

from tornado import web

from gpusched.dashboard.page_registration import PAGE, register


def __getattr__(name: str) -> Any:
    # An attribute would be read as well, but not tell that a further scheduler starts: the first
    # one of a process may have no dashboard.
    if name != "routes":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()
    return [(rf"{PAGE}/(individual-[a-z0-9-]+(?:\.json)?)", _Plots, {})]


class _Plots(web.RequestHandler):
    """Sends JupyterLab's extension, which looks for plots below a cluster's link, to them."""

    def initialize(self, **told: Any) -> None:
        """Take what distributed gives to each of its pages, none of which is needed."""

    def get(self, plot: str) -> None:
        # Relative, since a proxy may have moved all pages.
        self.redirect(f"../{plot}")
