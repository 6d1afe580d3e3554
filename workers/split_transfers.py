"""Results of one worker, fetched over two connections.

One result is compressed while another is sent, since distributed makes a whole message before it
sends the first byte of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from dask.typing import Key
from distributed.worker_state_machine import (
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    StateMachineEvent,
)

_LANES = 2
_PART = 8 << 20
"""Bytes of a message below which another one costs more than it saves."""
_PATIENCE = 0.15
"""Seconds after which a busy worker is asked again, as distributed does."""

Fetch = Callable[[Collection[Key]], Awaitable[StateMachineEvent]]


def parts(sizes: Mapping[Key, int]) -> list[list[Key]]:
    """Return keys in the given order, in groups that are worth a message each.

    Parameters
    ----------
    sizes
        Bytes by key.

    Examples
    --------
    >>> from gpusched.workers.split_transfers import parts
    >>> parts({"a": 9_000_000, "b": 10, "c": 20, "d": 30_000_000, "e": 5})
    [['a'], ['b', 'c', 'd'], ['e']]
    """
    found: list[list[Key]] = [[]]
    total = 0
    for key, nbytes in sizes.items():
        if total >= _PART:
            found.append([])
            total = 0
        found[-1].append(key)
        total += nbytes
    return found


async def fetch_parts(fetch: Fetch, waiting: Collection[Collection[Key]]) -> StateMachineEvent:
    """Return what fetching all keys gives.

    Parameters
    ----------
    fetch
        Fetches some keys.
    waiting
        Keys in groups.

    Returns
    -------
    StateMachineEvent
        Success with all data, or what else has happened to one of the groups. Where a worker is
        too busy for some and gives others, it is asked again: nothing is fetched twice for that.
    """
    fetching = _Fetching(fetch, deque(waiting))
    await asyncio.gather(*(fetching.run() for _ in range(min(_LANES, len(waiting)))))
    return fetching.outcome()


class _Fetching:
    def __init__(self, fetch: Fetch, waiting: deque[Collection[Key]]) -> None:
        self.fetch = fetch
        self.waiting = waiting
        self.asking = 0
        self.got: list[GatherDepSuccessEvent] = []
        self.ended: list[StateMachineEvent] = []

    async def run(self) -> None:
        while self.waiting and not self.ended:
            part = self.waiting.popleft()
            self.asking += 1
            try:
                event = await self.fetch(part)
            finally:
                self.asking -= 1
            if isinstance(event, GatherDepSuccessEvent):
                self.got.append(event)
            elif isinstance(event, GatherDepBusyEvent) and (self.got or self.asking):
                self.waiting.append(part)
                await asyncio.sleep(_PATIENCE)
            else:
                self.ended.append(event)

    def outcome(self) -> StateMachineEvent:
        if self.ended:
            return self.ended[0]
        data = {key: value for event in self.got for key, value in event.data.items()}
        return replace(self.got[-1], data=data)
