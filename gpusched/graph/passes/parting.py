"""Steps of reductions that dask has fused with others -> tasks of their own.

dask fuses a first step with what is computed before it, and the last steps where a number of chunks
is left over. Who gives steps other results to join takes them apart first; what stays as it was is
put together again by `gpusched.graph.passes.chains.without_links`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gpusched.graph.functions.reductionsteps import is_step, steps_after
from gpusched.graph.passes.cutting import piece_of
from gpusched.graph.passes.table import Table
from gpusched.graph.subgraph import depth_first, references


def parted(table: Table, keys: Collection[Any], cuts: bool = False) -> Table:
    """Return a graph in which each step of a reduction is the last of its task.

    Parameters
    ----------
    table
        The graph.
    keys
        Of the tasks that are taken apart.
    cuts
        Whether pieces that are cut off chunks become tasks of their own, too, where there are
        steps: dask fuses all that is done with a piece where nothing else is computed with it.
    """
    found = {}
    for key, node in table.tasks.items():
        flat = table.inside(node) if key in keys else None
        if flat is None:
            found[key] = node
            continue
        inner, last = flat
        ends = [
            k for k, each in inner.items() if k != last and (is_step(each) or steps_after(each))
        ]
        if cuts and (ends or steps_after(inner[last])):
            ends += [k for k, each in inner.items() if k != last and _cuts(each, inner)]
        if not ends and len(inner) > 1:
            found[key] = node
            continue
        for end in (*ends, last):
            group = computed_from(end, inner, set(ends) - {end})
            found[end] = table.fused([inner[k] for k in group], end)
    return replace(table, tasks=found)


def computed_from(key: Any, inner: Mapping[Any, Any], beyond: Collection[Any] = ()) -> list[Any]:
    """Return the keys of a task and of those before it, operands first, but for some and theirs."""

    def operands(name: Any) -> list[Any]:
        return [k for k in references(inner[name]) if k in inner and k not in beyond]

    return depth_first([key], operands)


def _cuts(node: Any, inner: Mapping[Any, Any]) -> bool:
    """Return whether a task cuts a piece off a chunk, rather than off what is computed beside."""
    return piece_of(node) is not None and node.dependencies.isdisjoint(inner)
