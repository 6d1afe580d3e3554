"""A graph of arrays, optimised as dask does, with programs instead of its chunk tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from time import perf_counter
from typing import Any

from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from gpusched import events
from gpusched.adapters.tasks import Task
from gpusched.breaks import GraphBreak
from gpusched.graph.direct import optimised
from gpusched.graph.early import collector_paused
from gpusched.graph.functions.partials import slow_part
from gpusched.graph.passes.assembling import assembled
from gpusched.graph.passes.batching import batched
from gpusched.graph.passes.chains import absorbed, has_join_inside, without_links, without_names
from gpusched.graph.passes.cutting import cut_together, cuts_of
from gpusched.graph.passes.fitting import check, note
from gpusched.graph.passes.grouping import limits, tiny_bytes
from gpusched.graph.passes.items import taken_inside
from gpusched.graph.passes.merging import merge_bytes, merged
from gpusched.graph.passes.recomputing import recomputed
from gpusched.graph.passes.sizes import Sizes
from gpusched.graph.passes.table import PASSES, Table
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.program import Program
from gpusched.graph.programs.rewrite import rewrite
from gpusched.graph.subgraph import made_of
from gpusched.plan.overrides import DRAWN, Overrides
from gpusched.roles import cluster_threads
from gpusched.store.statistics import updating

FEW = 24
"""Nodes of a graph that keeps other names of tasks, and chains, as dask makes them: who looks into
a graph of that size, as dask's own tests do, expects them. Graphs of 20 nodes would be computed in
the same time without them, and optimised in 0.1 ms more, of 1.5."""
FEW_TASKS = GraphBreak.FEW_TASKS(f"a graph of no more than {FEW} tasks")
NOT_FUSED = GraphBreak.FEW_TASKS("optimization.fuse.active is False")
"""dask keeps all tasks apart then, and so do the passes over them."""


def optimise(dsk: Any, keys: Any, overrides: Overrides, alone: bool = True, **kwargs: Any) -> Any:
    """Return the graph that `gpusched.graph.hook.Hook` gives dask, see there."""
    if isinstance(keys, set | frozenset):
        keys = sorted(keys, key=str)
    with collector_paused():
        return _optimise(dsk, keys, overrides, alone, **kwargs)


def _optimise(dsk: Any, keys: Any, overrides: Overrides, alone: bool, **kwargs: Any) -> Any:
    started = perf_counter()
    graph = optimised(dsk, keys, **kwargs)
    if events.active:
        events.record_since("graph", "optimise", started)
        started = perf_counter()
    layers = dsk.layers if isinstance(dsk, HighLevelGraph) else {}
    found: Any
    if isinstance(graph, HighLevelGraph):
        found = _rewrite_layers(graph, layers, overrides)
    else:
        table, found = _rewrite_tasks(graph, keys, layers, overrides)
        found = assembled(found, table) if alone else found
    if events.active:
        events.record_since("graph", "rewrite", started)
    return found


def _rewrite_tasks(tasks: dict[Any, Any], keys: Any, layers: Mapping[str, Any],
                   overrides: Overrides) -> tuple[Table, dict[Any, Any]]:  # fmt: skip
    if overrides.random == DRAWN:
        tasks = _drawn(tasks)
    wanted = list(flatten([keys]))
    table = regrouped(Table(tasks, wanted, Sizes(layers), Functions(overrides)))
    check(table.tasks, table.sizes)
    rewritten = rewrite(table.tasks, table.functions, table.wanted, table.forms)
    if cluster_threads():
        _declare(rewritten, table)
    note(table.tasks, rewritten, table.sizes)
    found = batched(rewritten, table, limits())
    with updating() as counters:
        counters.apart.update(table.apart)
    return table, taken_inside(found, table.items)


def _drawn(tasks: Mapping[Any, Any]) -> dict[Any, Any]:
    from gpusched.graph.passes.drawing import drawn

    return drawn(tasks)


def _declare(rewritten: Mapping[Any, Any], table: Table) -> None:
    """Let each program know how much memory its tasks take at most: a cluster's workers plan by it.

    Tasks whose programs do not know are measured there as they run.
    """
    seen = set()
    for key, node in rewritten.items():
        program = getattr(node, "func", None)
        kind = program, key[0] if type(key) is tuple else key
        if type(program) is not Program or kind in seen:
            continue
        seen.add(kind)
        taken, remaining = table.sizes.taken(table.tasks, table.tasks[key]), program.remaining
        if taken.whole or taken.extra:
            # Others may take memory for themselves, and return other things than dask's chunks.
            ours = all(step.recorded or slow_part(step.function) is None for step in program.steps)
            remaining.whole = taken.whole and ours and (remaining.extra is None or remaining.whole)
            remaining.extra = max(taken.extra or 0, remaining.extra or 0)


def regrouped(table: Table, joins: Collection[Any] = ()) -> Table:
    """Return a graph with tasks put together that dask leaves apart, still without programs.

    Parameters
    ----------
    table
        The graph.
    joins
        Keys of tasks that join the chunks of results, and that are left out as soon as it is known
        which chunks they join.
    """
    small, least = tiny_bytes(), merge_bytes()
    few = len(table.tasks) <= FEW
    if few:
        table.note("chain", FEW_TASKS)
        table = table.without_joins(joins)
    else:
        table = without_links(without_names(table))
        whole = _in_whole_chunks(table, small)
        found = whole.without_joins(joins)
        table = found if whole is table else without_links(found)
        answer, nodes = table.forms.answer, table.tasks.values()
        if any(type(node) is Task and answer(has_join_inside, node) for node in nodes):
            from gpusched.graph.passes.reducefirst import reduced_first

            parted = reduced_first(table, least)
            if parted is not table:
                table = without_links(parted)
    table = absorbed(table, small)
    found = merged(recomputed(table, least), least)
    if not few or found is not table:
        found = without_links(found, joins=True)
    return cut_together(found, small, least)


def _in_whole_chunks(table: Table, small: int) -> Table:
    # Tasks that compute with a piece, too, are left to batches where all chunks are small: these
    # cost a graph less.
    nodes: Iterable[Any] = table.tasks.values()
    if table.sizes.largest > small:
        nodes = chain.from_iterable(map(made_of, nodes))
    if not any(type(node) is Task and cuts_of(node) for node in nodes):
        return table
    from gpusched.graph.passes.unsplitting import unsplit

    return unsplit(table)


def _rewrite_layers(graph: HighLevelGraph, built: Mapping[str, Any],
                    overrides: Overrides) -> HighLevelGraph:  # fmt: skip
    functions = Functions(overrides)
    check(graph.to_dict(), Sizes(built))
    layers = {}
    for name, layer in graph.layers.items():
        tasks = dict(layer)
        # Any layer may be read by another one, or be a result.
        rewritten = rewrite(_drawn(tasks) if overrides.random == DRAWN else tasks, functions, tasks)
        changed = any(rewritten[key] is not node for key, node in tasks.items())
        layers[name] = MaterializedLayer(rewritten, layer.annotations) if changed else layer
    with updating() as counters:
        counters.apart.update((what, NOT_FUSED) for what in PASSES)
    return HighLevelGraph(layers, graph.dependencies)
