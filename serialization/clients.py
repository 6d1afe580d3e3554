"""Results that arrive damaged at a client: asked for again, and then computed again.

What a scheduler makes of `RECOMPUTE` is in gpusched/cluster/recomputing.py; workers ask it too, in
workers/damaged.py.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections import Counter
from collections.abc import Collection
from typing import Any

from dask.typing import Key
from distributed import Client
from distributed.utils_comm import retry_operation

from gpusched.adapters.distributed import gathered_keys, gathering, replace_gathering
from gpusched.serialization.frames import CorruptFrameError

logger = logging.getLogger(__name__)

RECOMPUTE = "gpusched_recompute"
"""The request to a scheduler: let go of results, and return which of them are computed again."""
MOST = 3
"""How often a result is computed again because it arrives damaged. A connection that changes the
same bytes each time does not become better by computing."""

_again: weakref.WeakKeyDictionary[Client, Counter[Key]] = weakref.WeakKeyDictionary()


def register() -> None:
    """Take the place of what clients gather results with; a second time changes nothing."""
    theirs = gathering()
    if not hasattr(theirs, "__wrapped__"):
        replace_gathering(_with_another_try(theirs))


def _with_another_try(theirs: Any) -> Any:
    @functools.wraps(theirs)
    async def gather_remote(client: Client, direct: bool, local_worker: Any) -> dict[str, Any]:
        # It is replaced once the keys are sent off, and grows until then.
        keys = gathered_keys(client)
        try:
            response: dict[str, Any] = await theirs(client, direct, local_worker)
        except CorruptFrameError as error:
            assert keys is not None
            return await _gather_again(client, keys, error)
        return response

    return gather_remote


async def _gather_again(
    client: Client, keys: Collection[Key], error: CorruptFrameError
) -> dict[str, Any]:
    """Return what distributed's own function does, with what is still damaged as missing."""
    logger.warning("results arrived damaged, and are asked for again: %s", error)
    try:
        return await _ask(client, keys)
    except CorruptFrameError:
        found, missing, damaged = await _gather_each(client, keys)
    if damaged:
        await _compute_again(client, damaged, error)
    # distributed waits until what is missing is there again, and then gathers all.
    if missing or damaged:
        return {"status": "error", "keys": [*missing, *damaged]}
    return {"status": "OK", "data": found}


async def _gather_each(
    client: Client, keys: Collection[Key]
) -> tuple[dict[Key, Any], list[Key], list[Key]]:
    """Return results, the keys that nobody has, and those whose results arrive damaged."""
    found: dict[Key, Any] = {}
    missing: list[Key] = []
    damaged: list[Key] = []
    for key in keys:
        try:
            response = await _ask(client, [key])
        except CorruptFrameError:
            damaged.append(key)
        else:
            found |= response.get("data", {})
            missing += response.get("keys", [])
    return found, missing, damaged


async def _ask(client: Client, keys: Collection[Key]) -> dict[str, Any]:
    assert client.scheduler is not None
    response: dict[str, Any] = await retry_operation(client.scheduler.gather, keys=list(keys))
    return response


async def _compute_again(client: Client, damaged: list[Key], error: CorruptFrameError) -> None:
    """Have the scheduler compute results again.

    Raises `CorruptFrameError` if one cannot be computed, as data that was scattered, or has been
    too often.
    """
    again = _again.setdefault(client, Counter())
    again.update(damaged)
    if max(again[key] for key in damaged) > MOST:
        raise error
    logger.error("arrived damaged, to be computed again: %s", damaged)
    # A scheduler without gpusched does not know the request, and answers None.
    let_go = await getattr(client.scheduler, RECOMPUTE)(keys=damaged) or ()
    if not set(damaged) <= set(let_go):
        raise error
