"""What is inside dask's tasks: whose results they are, and which functions they call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dask._task_spec import Alias, NestedContainer, Task, _execute_subgraph, _identity_cast

_SUFFIX = re.compile(r"(_\.\d+)+$")


def layer_of(key: Any) -> str:
    """Return the name of the layer that a key belongs to, also inside fused tasks.

    Examples
    --------
    >>> from gpusched.inspection.tasks import layer_of
    >>> layer_of(("add-5f0c", 0, 1)), layer_of("add-5f0c_.0_.1")
    ('add-5f0c', 'add-5f0c')
    """
    name = key[0] if isinstance(key, tuple) and key else key
    return _SUFFIX.sub("", str(name))


def result_key(node: Any) -> Any:
    """Return the key that a task's result belongs to: that of the last task fused into it."""
    if not isinstance(node, Task) or node.func is not _execute_subgraph:
        return getattr(node, "key", None)
    wanted = node.args[1]
    if not isinstance(wanted, tuple):
        return node.key  # fused by layers, whose key is the last layer's
    inner = node.args[0].get(wanted)
    return result_key(inner) if isinstance(inner, Task) else wanted


def calls_of(node: Any) -> list[tuple[str, Any]]:
    """Return (layer, function) of each call a task makes, those fused into it included."""
    found: list[tuple[str, Any]] = []

    def visit(value: Any, layer: str) -> None:
        if not isinstance(value, Task):
            return
        layer = layer_of(value.key) if value.key is not None else layer
        if value.func is _execute_subgraph:
            for inner in value.args[0].values():
                visit(inner, layer)
            for item in value.args[3:]:
                visit(item, layer)
            return
        for item in value.args:
            visit(item, layer)
        if value.func is not _identity_cast and not isinstance(value, NestedContainer):
            found.append((layer, value.func))

    visit(node, layer_of(getattr(node, "key", "")))
    return found


def aliases_of(node: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (name, target) of the chunks inside a task that are another task's result."""
    if isinstance(node, Task) and node.func is _execute_subgraph:
        for key, inner in node.args[0].items():
            if isinstance(inner, Alias) and isinstance(key, tuple):
                yield key, inner.target
            else:
                yield from aliases_of(inner)
