"""Results that arrive damaged at a client: asked for again, and then computed again.

distributed's client raises what reading its answer raises, whatever was asked for with it. Here
each of those results is asked for by itself, twice; then its workers are asked to forget it, so
that the scheduler has it computed again. That may happen `MOST` times for one result. Between
workers `gpusched.workers.damaged` does the same.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from dask.typing import Key
from distributed import Client

from gpusched.serialization.frames import CorruptFrameError

logger = logging.getLogger("gpusched.serialization")

MOST = 3
"""How often a result is computed again because it arrives damaged."""
FORGET = "gpusched_forget"
"""The request to a worker to let go of results."""

_again: WeakKeyDictionary[Client, Counter[Key]] = WeakKeyDictionary()


def register() -> None:
    """Have every client of this process do so; a second time changes nothing."""
    gather = Client._gather_remote
    if hasattr(gather, "__wrapped__"):
        return

    @functools.wraps(gather)
    async def gather_again(client: Client, direct: bool, local_worker: bool) -> dict[str, Any]:
        wanted: Any = client._gather_keys  # To which others add theirs, until it is asked for.
        try:
            return await gather(client, direct, local_worker)
        except CorruptFrameError as error:
            logger.warning("results arrived damaged, and are asked for again: %s", error)
            return await _each(client, wanted)

    Client._gather_remote = gather_again  # type: ignore[assignment,method-assign]


async def _each(client: Any, keys: Iterable[Key]) -> dict[str, Any]:
    """Return what distributed's client does for some keys, which are asked for one by one."""
    data: dict[Key, Any] = {}
    missing: list[Key] = []
    for key in keys:
        response = await _one(client, key)
        data |= response.get("data", {})
        missing += response.get("keys", ())
    return {"status": "error", "keys": missing} if missing else {"status": "OK", "data": data}


async def _one(client: Any, key: Key) -> dict[str, Any]:
    for last in (False, True):
        try:
            response: dict[str, Any] = await client.scheduler.gather(keys=[key])
            return response
        except CorruptFrameError as error:
            if last:
                await _ask_to_forget(client, key, error)
    return {"status": "error", "keys": [key]}


async def _ask_to_forget(client: Any, key: Key, error: CorruptFrameError) -> None:
    """Have a key computed again; raise what reading it has raised if that has not helped."""
    again = _again.setdefault(client, Counter())
    if again[key] == MOST:
        raise error
    again[key] += 1
    logger.warning("arrived damaged, to be computed again: %s", key)
    for address in (await client.scheduler.who_has(keys=[key])).get(key, ()):
        try:
            await getattr(client.rpc(address), FORGET)(keys=[key])
        except OSError as error:
            # It is gone, and so are its results.
            logger.info("worker %s does not answer: %s", address, error)
