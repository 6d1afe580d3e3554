"""What is inside dask's tasks: whose results they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusched.adapters.tasks import Alias, Task, execute_subgraph
from gpusched.graph.subgraph import layer_of as layer_of
from gpusched.graph.subgraph import result_key as result_key


def aliases_of(node: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (name, target) of the chunks inside a task that are another task's result."""
    if isinstance(node, Task) and node.func is execute_subgraph:
        for key, inner in node.args[0].items():
            if isinstance(inner, Alias) and isinstance(key, tuple):
                yield key, inner.target
            else:
                yield from aliases_of(inner)
