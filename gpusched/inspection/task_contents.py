"""What is inside dask's tasks: whose results they are, and which functions they call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusched.adapters.tasks import Alias, Task, execute_subgraph, is_container
from gpusched.graph.subgraph import layer_of as layer_of
from gpusched.graph.subgraph import result_key as result_key


def calls_of(node: Any) -> list[tuple[str, Any]]:
    """Return (layer, function) of each call a task makes, those fused into it included."""
    found: list[tuple[str, Any]] = []

    def visit(value: Any, layer: str) -> None:
        if not isinstance(value, Task):
            return
        layer = layer_of(value.key) if value.key is not None else layer
        if value.func is execute_subgraph:
            for inner in value.args[0].values():
                visit(inner, layer)
            for item in value.args[3:]:
                visit(item, layer)
            return
        for item in value.args:
            visit(item, layer)
        if not is_container(value):
            found.append((layer, value.func))

    visit(node, layer_of(getattr(node, "key", "")))
    return found


def aliases_of(node: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (name, target) of the chunks inside a task that are another task's result."""
    if isinstance(node, Task) and node.func is execute_subgraph:
        for key, inner in node.args[0].items():
            if isinstance(inner, Alias) and isinstance(key, tuple):
                yield key, inner.target
            else:
                yield from aliases_of(inner)
