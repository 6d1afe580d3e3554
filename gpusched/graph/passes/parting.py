"""Steps of reductions that dask has fused with others -> tasks of their own.

dask fuses a first step with what is computed before it, and the last steps where a number of chunks
is left over. Who gives steps other results to join takes them apart first; what stays as it was is
put together again by `gpusched.graph.passes.chains.without_links`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpusched.adapters.arrays import take
from gpusched.graph.functions.reductionsteps import is_step, steps_after
from gpusched.graph.passes.cutting import piece_of
from gpusched.graph.passes.table import Table
from gpusched.graph.subgraph import depth_first, fused_into, last_task, made_of, references

Index = tuple[slice, ...]


def parted(table: Table, keys: Container[Any], cuts: bool = False) -> Table:
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


# Reductions of pieces -----------------------------------------------------------------------


def parted_pieces(table: Table, pieces: Mapping[Any, Index]) -> Table | None:
    """Return a graph in which pieces that are reduced, and what joins them, are no part of others.

    None if there are no such pieces. Most pieces are joined with those of other chunks, or reduced
    along other axes than those along which chunks are cut: nothing is taken apart for these.

    Parameters
    ----------
    table
        The graph.
    pieces
        By the keys of tasks that do nothing else, which slices of a chunk they cut off.
    """
    tasks = table.tasks
    cut = _begun(pieces.values())

    def reduces_pieces(node: Any) -> bool:
        axes = _reduced_axes(node)
        if not axes.isdisjoint(_begun(filter(None, map(piece_of, made_of(node))))):
            return True
        given = not axes.isdisjoint(cut) and not pieces.keys().isdisjoint(node.dependencies)
        return given and all(k in pieces or _calls_take(tasks.get(k)) for k in node.dependencies)

    reducing = {key: node for key, node in tasks.items() if _reduces(node)}
    return parted(table, reducing, True) if any(map(reduces_pieces, reducing.values())) else None


def _begun(pieces: Iterable[Index]) -> set[int]:
    """Return the axes along which chunks are cut: along which a piece begins further on."""
    return {axis for index in pieces for axis, each in enumerate(index) if each.start}


def _reduced_axes(node: Any) -> set[int]:
    """Return the axes along which first steps of reductions reduce that are fused into a task."""
    firsts = filter(steps_after, made_of(node))
    return set[int]().union(*(each.kwargs["axis"] for each in firsts))


def _calls_take(node: Any) -> bool:
    return any(getattr(each, "func", None) is take for each in made_of(node))


def _reduces(node: Any) -> bool:
    """Return whether a task has a step of a reduction in it, after something else."""
    inside = fused_into(node)
    return bool(inside) and (bool(steps_after(last_task(node))) or any(map(is_step, inside)))
