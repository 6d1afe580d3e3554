"""Where dask makes one expression of all collections that are computed: arrays are fused there."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import dask

from gpusched.graph.frontends.adapter import entered_through, optimise_by, replace_entry


def install() -> None:
    """Have array expressions optimised by gpusched's hook, where dask's configuration has it."""
    plain = entered_through()
    if plain is None:
        warnings.warn(
            "array expressions are computed without fusion: this version of dask is not known to "
            "gpusched; arrays of dask.array are fused",
            stacklevel=2,
        )
        return
    if hasattr(plain, "__gpusched__"):
        return

    @functools.wraps(plain)
    def entry(collections: Any, optimize_graph: bool = True, **kwargs: Any) -> Any:
        expression = plain(collections, optimize_graph, **kwargs)
        hook = _hook() if optimize_graph else None
        if hook is None:
            return expression
        # Imported by the first graph: a process that sees none can do without dask.array.
        from gpusched.graph.frontends.fused_expressions import fused, note_unknown

        watch()
        note_unknown(collections)
        return fused(expression, hook)

    entry.__gpusched__ = True  # type: ignore[attr-defined]
    replace_entry(plain, entry)


def watch() -> None:
    """Have arrays of the front ends that are imported by now optimise their own graphs, too.

    They do so for `to_delayed`, which goes through nothing else.
    """
    optimise_by(_optimised)


def _optimised(graph: Any, keys: Any, expression: Any = None, **kwargs: Any) -> Any:
    hook = _hook()
    if hook is None:
        return graph
    if expression is not None:
        from gpusched.graph.frontends.layered import exchanged

        graph = exchanged(graph, expression)
    return hook(graph, keys, **kwargs)


def _hook() -> Any:
    """Return gpusched's hook if dask's configuration has it; other hooks never see expressions."""
    hook = dask.config.get("array_optimize", None)
    return hook if getattr(hook, "optimises_expressions", False) else None
