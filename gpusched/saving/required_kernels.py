"""The kernels that a graph will be run with, found as `gpusched.explain` finds them: not run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dask.highlevelgraph import HighLevelGraph
from dask.utils import key_split

from gpusched.emit import hostloops
from gpusched.inspection.gather import Wanted
from gpusched.inspection.walk import Walk


@dataclass
class Found:
    """What came of going through a graph."""

    sources: dict[str, str] = field(default_factory=dict)
    """Text of each kernel, by name."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Why tasks were not gone through, by the name of what they compute."""


def find(built: HighLevelGraph, tasks: dict[Any, Any]) -> Found:
    """Return the kernels of a graph.

    Parameters
    ----------
    built
        The graph as it was built, also of the inputs that it depends on.
    tasks
        What of it is saved: dask's nodes by key, optimised.
    """
    found = Found()
    for variant in Walk(Wanted(built, tasks, ())).run().variants:
        for use in variant.kernels:
            kernel = use.launch.kernel.kernel
            found.sources[kernel.name] = hostloops.source(kernel)
        if variant.unknown:
            found.unknown.setdefault(key_split(variant.name), variant.unknown)
    return found
