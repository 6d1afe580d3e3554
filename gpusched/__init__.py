"""Runs dask.array programs with one generated kernel per chunk, on CPUs and GPUs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpusched import config as _config

if TYPE_CHECKING:
    from gpusched import models as models
    from gpusched import ops as ops
    from gpusched import threadsafe as threadsafe
    from gpusched.cluster import Cluster, local
    from gpusched.debugging import debug, find_nonfinite, trace_element
    from gpusched.graph import disable, enable, fusible
    from gpusched.inspection import explain
    from gpusched.jobs import checkpoint
    from gpusched.kernels import kernel
    from gpusched.models import apply
    from gpusched.profiling import profile
    from gpusched.saving import load, save
    from gpusched.store.statistics import Statistics, reset_statistics, statistics
    from gpusched.tuning import override, tune

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Statistics",
    "apply",
    "checkpoint",
    "debug",
    "disable",
    "enable",
    "explain",
    "find_nonfinite",
    "fusible",
    "kernel",
    "load",
    "local",
    "override",
    "profile",
    "reset_statistics",
    "save",
    "statistics",
    "trace_element",
    "tune",
]

_HOMES = {
    "Cluster": "gpusched.cluster",
    "Statistics": "gpusched.store.statistics",
    "apply": "gpusched.models",
    "checkpoint": "gpusched.jobs",
    "debug": "gpusched.debugging",
    "disable": "gpusched.graph",
    "enable": "gpusched.graph",
    "explain": "gpusched.inspection",
    "find_nonfinite": "gpusched.debugging",
    "fusible": "gpusched.graph",
    "kernel": "gpusched.kernels",
    "load": "gpusched.saving",
    "load_ipython_extension": "gpusched.jupyter",
    "local": "gpusched.cluster",
    "override": "gpusched.tuning",
    "profile": "gpusched.profiling",
    "reset_statistics": "gpusched.store.statistics",
    "save": "gpusched.saving",
    "statistics": "gpusched.store.statistics",
    "trace_element": "gpusched.debugging",
    "tune": "gpusched.tuning",
}
"""Where each public name is defined; it is imported on first use, so that importing is cheap."""

_PACKAGES = frozenset({"chunking", "models", "ops", "threadsafe"})
"""Parts with public names of their own, imported on first use, too."""

_config.register()


if not TYPE_CHECKING:  # A type checker shall know the names above, and only these.

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return importlib.import_module(f"gpusched.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
