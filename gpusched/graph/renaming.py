"""Names of their own for chunks that users' versions of kernels compute.

A scheduler takes tasks of one name for the same, whoever sends them, and computes them once. What
is computed by a user's version of a kernel is not the same.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.utils import ensure_dict

from gpusched.adapters.tasks import GraphNode, Task, convert_legacy_graph
from gpusched.graph.programs.program import Program
from gpusched.graph.subgraph import depth_first
from gpusched.plan.overrides import OverrideError, Overrides


def own_names(graph: Any, wanted: Set[Any], overrides: Overrides) -> Any:
    """Return a graph with its programs, and all that depends on them, under names of their own.

    Parameters
    ----------
    graph
        Rewritten: a dictionary, or layers.
    wanted
        The keys that are asked for, which keep their names.
    overrides
        What the programs are computed with.

    Raises
    ------
    OverrideError
        If chunks themselves are asked for, as by ``persist``: their names are the array's.
    """
    if not isinstance(graph, HighLevelGraph):
        return _renamed(graph, _names(graph, wanted, overrides))
    # What dask has not fused may hold tasks of its older form.
    everything = convert_legacy_graph(ensure_dict(graph))
    names = _names(everything, wanted, overrides)
    layers = {
        name: MaterializedLayer(
            _renamed({key: everything[key] for key in layer}, names), layer.annotations
        )
        for name, layer in graph.layers.items()
    }
    return HighLevelGraph(layers, graph.dependencies)


def _names(graph: dict[Any, Any], wanted: Set[Any], overrides: Overrides) -> dict[Any, Any]:
    changed = _changed(graph)
    for key in changed & wanted:
        # What is kept in the fast mode stays so, as its author wants it.
        if isinstance(key, tuple) and overrides.found:
            raise OverrideError(
                f"chunk {key} cannot be kept on a cluster while {_of(overrides)} in effect: it "
                "would be taken for the original's by everybody who computes the same array. "
                "Compute instead of persisting, or persist with the original"
            )
    suffix = f"-edited-{overrides.token}"
    return {
        key: (f"{key[0]}{suffix}", *key[1:]) if isinstance(key, tuple) else f"{key}{suffix}"
        for key in changed - wanted
    }


def _of(overrides: Overrides) -> str:
    count = len(overrides.found)
    return "a version of a kernel is" if count == 1 else f"versions of {count} kernels are"


def _changed(graph: dict[Any, Any]) -> set[Any]:
    """Return the keys of programs, and of all that depends on them."""
    found: set[Any] = set()
    for key in depth_first(graph, lambda key: [k for k in graph[key].dependencies if k in graph]):
        if _holds_program(graph[key]) or not found.isdisjoint(graph[key].dependencies):
            found.add(key)
    return found


def _holds_program(node: Any) -> bool:
    return type(node) is Task and isinstance(node.func, Program)


def _renamed(tasks: dict[Any, GraphNode], names: dict[Any, Any]) -> dict[Any, Any]:
    return {
        names.get(key, key): node.substitute(names, key=names.get(key, key))
        for key, node in tasks.items()
    }
