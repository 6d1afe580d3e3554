"""What `explain` is given -> one graph of array tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.array import Array
from dask.array.core import concatenate3
from dask.base import is_dask_collection, tokenize, unpack_collections
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

from gpusched.adapters.tasks import List, Task, TaskRef, convert_legacy_graph
from gpusched.graph import enable
from gpusched.graph.direct import optimised
from gpusched.graph.frontends.adapter import expression_of, front_ends
from gpusched.graph.frontends.layered import has_arrays, layered


@dataclass(frozen=True)
class Wanted:
    """A graph as it was built, and as it will run but for the programs in its tasks."""

    built: HighLevelGraph
    tasks: dict[Any, Any]
    """dask's nodes by key, optimised."""
    keys: tuple[Any, ...]
    """Of the results, in order."""
    items: frozenset[Any] = frozenset()
    """Keys of tasks that others do beside their own: they take an item out of a result."""
    joins: tuple[Task, ...] = ()
    """Those that `compute` adds, each of which joins the chunks of one collection."""


def gather(subject: Any, *args: Any, **kwargs: Any) -> Wanted:
    """Return the graph of arrays, of an xarray object, or of a function's call.

    Raises `TypeError` if there is no dask array in what is given, or something else than arrays.

    Parameters
    ----------
    subject
        A dask array, an object that holds some (a list, an xarray object), or a function.
    *args, **kwargs
        The function's. dask arrays among them are what it is called with; a function of NumPy
        arrays only is one task.
    """
    if callable(subject) and not is_dask_collection(subject):
        subject = _called(subject, args, kwargs)
        if isinstance(subject, Wanted):
            return subject
    elif args or kwargs:
        others = [*args, *kwargs.values()]
        for each in others:
            if not unpack_collections(each)[0]:
                raise TypeError(
                    f"what follows an array is further arrays, a cluster or a client, not "
                    f"{each!r:.100} of type {type(each).__name__}; arguments are a function's"
                )
        subject = [subject, *others]
    collections, _ = unpack_collections(subject)
    if not collections:
        raise TypeError(f"there is no dask array in this {type(subject).__name__} to explain")
    for each in collections:
        if not _of_arrays(each):
            raise TypeError(
                f"only arrays are explained, and xarray objects of them; this is a "
                f"{type(each).__name__}"
            )
    expression = expression_of(collections)
    if expression is not None and has_arrays(expression):
        expression = expression.optimize()
        keys = expression.__dask_keys__()
        joins = [_join(concatenate3, (), each) for each in keys if len([*flatten([each])]) > 1]
        return replace(wanted_of(layered(expression), [*flatten(keys)]), joins=(*joins,))
    graphs = [each.__dask_graph__() for each in collections]
    layers = [
        graph
        if isinstance(graph, HighLevelGraph)
        else HighLevelGraph.from_collections(f"graph-{k}", graph, dependencies=())
        for k, graph in enumerate(graphs)
    ]
    built = layers[0] if len(layers) == 1 else HighLevelGraph.merge(*layers)
    keys = [each.__dask_keys__() for each in collections]
    ends = [each.__dask_postcompute__() for each in collections]
    joins = [_join(end[0], end[1], of) for end, of in zip(ends, keys, strict=True)]
    return replace(wanted_of(built, [*flatten(keys)]), joins=(*joins,))


def _join(function: Any, rest: tuple[Any, ...], keys: Any) -> Task:
    return Task(f"finalize-{tokenize(keys)}", function, _references(keys), *rest)


def _references(keys: Any) -> Any:
    return List(*map(_references, keys)) if isinstance(keys, list) else TaskRef(keys)


def wanted_of(built: HighLevelGraph, keys: list[Any]) -> Wanted:
    """Return a graph, optimised as dask does it."""
    tasks = convert_legacy_graph(ensure_dict(optimised(built, keys)))
    return Wanted(built, tasks, tuple(dict.fromkeys(keys)))


def _of_arrays(collection: Any) -> bool:
    from_xarray = type(collection).__module__.partition(".")[0] == "xarray"
    kinds = (Array, *[end.collection for end in front_ends()])
    return from_xarray or isinstance(collection, kinds)


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function makes of dask arrays, or its call as the one task of a graph."""
    given, _ = unpack_collections([*args, *kwargs.values()])
    if given or not any(isinstance(a, np.ndarray) for a in (*args, *kwargs.values())):
        with enable():
            return function(*args, **kwargs)
    name = str(getattr(function, "__name__", type(function).__name__))
    task = Task((name, 0), function, *args, **kwargs)
    graph = {task.key: task}
    return Wanted(HighLevelGraph({name: graph}, {name: set()}), graph, tuple(graph))
