"""Links between the pages."""

from __future__ import annotations

from typing import Any

from bokeh.models.widgets import Div

from gpusched.dashboard.components.figures import INK

TITLES = {"gpus": "GPUs", "memory": "Memory", "kernels": "Kernels", "fusion": "Fusion",
          "compiling": "Compiling", "timeline": "Timeline"}  # fmt: skip
"""The pages' titles by their addresses."""


def navigation(shown: str) -> Any:
    """Return the line of links above a page."""
    # Relative, since a proxy may have put the dashboard anywhere.
    links = (
        f'<a href="./{address}" style="color: {INK}; margin-right: 1.5em; '
        f'{_CHOSEN if address == shown else _OTHER}">{title}</a>'
        for address, title in TITLES.items()
    )
    return Div(text="".join(links), styles={"font-size": "15px"}, margin=(8, 5, 8, 5))


_CHOSEN = "font-weight: bold; text-decoration: none; border-bottom: 2px solid #eaaa6d"
_OTHER = "text-decoration: none"
