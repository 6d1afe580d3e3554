"""Tasks that join chunks: which of their inputs they only copy into their result."""

from __future__ import annotations

import sys
from typing import Any

from dask.typing import Key

from gpusched.adapters.tasks import Alias, GraphNode, NestedContainer, TaskRef


def joins(function: Any) -> bool:
    """Return whether a function is one by which dask joins arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from dask.array.core import concatenate3
    >>> from gpusched.graph.joins import joins
    >>> joins(concatenate3), joins(np.stack)
    (True, False)
    """
    # Without this module, which clusters start without, no task calls its functions.
    core = sys.modules.get("dask.array.core")
    return core is not None and (
        function is core.concatenate3 or function is core.concatenate_shaped
    )


def copied(node: Any) -> set[Key]:
    """Return the keys of what a task only copies into its result.

    Examples
    --------
    >>> from dask.array.core import concatenate3
    >>> from gpusched.adapters.tasks import List, Task, TaskRef
    >>> from gpusched.graph.joins import copied
    >>> copied(Task("x", concatenate3, List(TaskRef("a"), Task("b", abs, TaskRef("c")))))
    {'a'}
    """
    if not joins(getattr(node, "func", None)):
        return set()
    whole, read = set[Key](), set[Key]()
    for argument in node.args:
        _note_keys(argument, whole, read)
    return whole - read


def _note_keys(argument: Any, whole: set[Key], read: set[Key]) -> None:
    """Note the keys of what a call is given itself, and of what calls within are given."""
    if isinstance(argument, NestedContainer):
        for each in argument.args:
            _note_keys(each, whole, read)
    elif isinstance(argument, Alias):
        whole.add(argument.target)
    elif isinstance(argument, TaskRef):
        whole.add(argument.key)
    elif isinstance(argument, GraphNode):
        read |= argument.dependencies
