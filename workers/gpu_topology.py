"""How the GPUs of this machine are connected, as NVML reports it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from gpusched.workers import nvml

_PATHS = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "PCIe host bridge",
    40: "same NUMA node",
    50: "between NUMA nodes",
}
"""NVML's levels of topology in words, nearest first."""
_MOST_LINKS = 18
"""NVLinks of a GPU at most."""


@dataclass(frozen=True)
class Connection:
    """The connection of two GPUs."""

    first: int
    """Index in NVML's order."""
    second: int
    nvlinks: int
    """NVLinks between the two; 0 for none."""
    path: str
    """The way over PCIe, in words."""


def links() -> list[Connection]:
    """Return the connection of each pair of GPUs; empty where there is no NVML."""
    with nvml.session() as library:
        if library is None:
            return []
        handles = [
            library.nvmlDeviceGetHandleByIndex(k) for k in range(library.nvmlDeviceGetCount())
        ]
        pairs = itertools.combinations(range(len(handles)), 2)
        return [_link(library, a, b, handles[a], handles[b]) for a, b in pairs]


def _link(library: Any, a: int, b: int, first: Any, second: Any) -> Connection:
    try:
        level = library.nvmlDeviceGetTopologyCommonAncestor(first, second)
    except library.NVMLError:
        level = None
    return Connection(a, b, _nvlinks(library, first, second), _PATHS.get(level, "unknown"))


def _nvlinks(library: Any, first: Any, second: Any) -> int:
    other = library.nvmlDeviceGetPciInfo(second).busId
    count = 0
    for number in range(_MOST_LINKS):
        try:
            active = library.nvmlDeviceGetNvLinkState(first, number)
            remote = library.nvmlDeviceGetNvLinkRemotePciInfo(first, number).busId
        except library.NVMLError:
            # This GPU has no link of that number.
            continue
        count += bool(active) and remote == other
    return count
