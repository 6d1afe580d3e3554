"""Tasks that join chunks: which of their inputs they only copy into their result."""

from __future__ import annotations

import sys
from typing import Any

from dask.typing import Key

from gpusched.adapters.tasks import Alias, GraphNode, TaskRef, is_container


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
    # Without this module, which clusters start without, no task calls its functions.
    core = sys.modules.get("dask.array.core")
    function = getattr(node, "func", None)
    if core is None or (
        function is not core.concatenate3 and function is not core.concatenate_shaped
    ):
        return set()
    whole, read = set[Key](), set[Key]()
    for argument in node.args:
        if is_container(argument):  # Anything else is given back as it is.
            _note_keys(argument, whole, read)
    return whole - read


def _note_keys(argument: Any, whole: set[Key], read: set[Key]) -> None:
    """Note the keys of what a call is given itself, and of what calls within are given."""
    if is_container(argument):
        for each in argument.args:
            _note_keys(each, whole, read)
    elif isinstance(argument, Alias):
        whole.add(argument.target)
    elif isinstance(argument, TaskRef):
        whole.add(argument.key)
    elif isinstance(argument, GraphNode):
        read |= argument.dependencies
