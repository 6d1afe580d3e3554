"""What each plot is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from distributed.dashboard.components import DashboardComponent


class Component(DashboardComponent):
    """A plot: made with a scheduler, shown by its root, and brought up to date by `update`."""

    root: Any
    source: Any

    @abstractmethod
    def __init__(self, scheduler: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def update(self) -> None:  # type: ignore[override]
        """Show what is known now."""
