"""dask's tasks, which optimised graphs consist of: `dask.task_spec`, and what it does not export.

Six classes are public (https://github.com/dask/dask/pull/11675). The others were left private with
the module: https://github.com/dask/dask/pull/11248.
"""

from __future__ import annotations

from gpusched.adapters.tested_releases import moved

try:
    # Around each task of an array that is given to `dask.delayed`.
    from dask._expr import ProhibitReuse

    # Containers of keys in arguments (Dict, NestedContainer, Tuple), which `gpusched.graph` goes
    # through and makes; layers may still have tuples for tasks, and keys in arguments (the rest).
    from dask._task_spec import Dict, NestedContainer, Tuple, convert_legacy_graph, parse_input

    # The function of a task that runs several others, as dask's own fusion makes it.
    from dask._task_spec import _execute_subgraph as execute_subgraph

    # The function that containers are tasks of.
    from dask._task_spec import _identity_cast as identity_cast
    from dask.task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
except ImportError as error:
    raise moved(error) from error

renamed = ProhibitReuse._identity
"""What the tasks of an array that is given to `dask.delayed` call, under other keys."""

__all__ = [
    "Alias",
    "DataNode",
    "Dict",
    "GraphNode",
    "List",
    "NestedContainer",
    "Task",
    "TaskRef",
    "Tuple",
    "convert_legacy_graph",
    "execute_subgraph",
    "identity_cast",
    "parse_input",
    "renamed",
]
