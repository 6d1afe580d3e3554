"""A graph of arrays, optimised as dask does, with programs instead of its chunk tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from gpusched import events
from gpusched.graph.absorbing import absorbed
from gpusched.graph.batching import batched
from gpusched.graph.chains import without_links
from gpusched.graph.collector import collector_paused
from gpusched.graph.cutting import cut_together
from gpusched.graph.direct import optimised
from gpusched.graph.items import taken_inside
from gpusched.graph.limits import limits
from gpusched.graph.merging import Merged, merge_bytes, merged
from gpusched.graph.names import without_names
from gpusched.graph.program import Program
from gpusched.graph.rewrite import Functions, rewrite
from gpusched.graph.sizes import Sizes
from gpusched.plan.overrides import Overrides

FEW = 24
"""Nodes of a graph that keeps other names of tasks, and chains, as dask makes them: next to nothing
would be gained without, and who looks into a graph of that size, as dask's own tests do, expects
them."""


def optimise(dsk: Any, keys: Any, overrides: Overrides, **kwargs: Any) -> Any:
    """Return the graph that `gpusched.graph.hook.Hook` gives dask, see there."""
    if isinstance(keys, set | frozenset):
        keys = sorted(keys, key=str)
    with collector_paused():
        return _optimise(dsk, keys, overrides, **kwargs)


def _optimise(dsk: Any, keys: Any, overrides: Overrides, **kwargs: Any) -> Any:
    started = perf_counter()
    graph = optimised(dsk, keys, **kwargs)
    if events.active:
        events.record_since("graph", "optimise", started)
        started = perf_counter()
    found: Any
    if isinstance(graph, HighLevelGraph):
        found = _rewrite_layers(graph, overrides)
    else:
        layers = dsk.layers if isinstance(dsk, HighLevelGraph) else {}
        found = _rewrite_tasks(graph, keys, layers, overrides)
    if events.active:
        events.record_since("graph", "rewrite", started)
    return found


def _rewrite_tasks(tasks: dict[Any, Any], keys: Any, layers: Mapping[str, Any],
                   overrides: Overrides) -> dict[Any, Any]:  # fmt: skip
    functions, sizes = Functions(overrides), Sizes(layers)
    found = regrouped(tasks, set(flatten([keys])), sizes, functions)
    rewritten = rewrite(found.tasks, functions)
    _declare(rewritten, found.tasks, sizes)
    result = batched(rewritten, found.tasks, flatten([keys]), sizes, functions, limits())
    return taken_inside(result.tasks, found.items)


def _declare(rewritten: Mapping[Any, Any], tasks: Mapping[Any, Any], sizes: Sizes) -> None:
    """Let each program know how much memory its tasks take at most, for the workers to plan by."""
    seen = set()
    for key, node in rewritten.items():
        program = getattr(node, "func", None)
        kind = program, key[0] if type(key) is tuple else key
        if type(program) is not Program or kind in seen:
            continue
        seen.add(kind)
        extra, remaining = sizes.extra(tasks[key]), program.remaining
        if extra is not None:
            remaining.extra = max(extra, remaining.extra or 0)


def regrouped(tasks: dict[Any, Any], wanted: Collection[Any], sizes: Sizes,
              functions: Functions) -> Merged:  # fmt: skip
    """Return a graph with tasks put together that dask leaves apart, still without programs.

    Parameters
    ----------
    tasks
        dask's nodes by key, optimised.
    wanted
        Keys of the results: they stay keys.
    sizes
        Of the chunks.
    functions
        What is known of the functions in the graph.
    """
    small, least = limits().chunk, merge_bytes()
    few = len(tasks) <= FEW
    if not few:
        tasks = without_links(without_names(tasks, wanted), wanted, sizes)
    tasks = absorbed(tasks, wanted, sizes, functions, small)
    found = merged(tasks, wanted, sizes, functions, least)
    if not few or found.tasks is not tasks:
        kept = {*wanted, *found.items}
        found = replace(found, tasks=without_links(found.tasks, kept, sizes, functions))
    return cut_together(found, wanted, sizes, small, least)


def _rewrite_layers(graph: HighLevelGraph, overrides: Overrides) -> HighLevelGraph:
    functions = Functions(overrides)
    layers = {}
    for name, layer in graph.layers.items():
        tasks = dict(layer)
        rewritten = rewrite(tasks, functions)
        changed = any(rewritten[key] is not node for key, node in tasks.items())
        layers[name] = MaterializedLayer(rewritten, layer.annotations) if changed else layer
    return HighLevelGraph(layers, graph.dependencies)
