"""dask's tasks: `dask._task_spec`.

Its classes are what optimised graphs consist of (https://github.com/dask/dask/issues/9969). Whether
the module is to be public was left open: https://github.com/dask/dask/pull/11248.
"""

from __future__ import annotations

from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    NestedContainer,
    Task,
    TaskRef,
    Tuple,
    convert_legacy_graph,
    parse_input,
)
from dask._task_spec import _execute_subgraph as execute_subgraph
from dask._task_spec import _identity_cast as identity_cast

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
]
