"""Results that arrive from other workers and cannot be read: errors of the tasks that need them.

distributed alone would wait for them forever: https://github.com/dask/distributed/issues/6705
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from dask.typing import Key
from distributed.core import clean_exception
from distributed.worker_state_machine import (
    GatherDepFailureEvent,
    GatherDepSuccessEvent,
    StateMachineEvent,
)


class Unreadable:
    """Stands for such a result until the first task that needs it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _refuse, (self.error,)


def _refuse(error: BaseException) -> None:
    raise error


async def fetch_each(
    fetch: Callable[[Collection[Key]], Awaitable[StateMachineEvent]],
    failed: GatherDepFailureEvent,
    keys: Collection[Key],
) -> StateMachineEvent:
    """Return what fetching keys one by one gives, after not all of them could be read together.

    Parameters
    ----------
    fetch
        Fetches some keys.
    failed
        What fetching all of them at once gave.
    keys
        All of them.

    Returns
    -------
    StateMachineEvent
        Success, with `Unreadable` instead of what cannot be read; or what else has happened.
    """
    data: dict[Key, object] = {}
    for key in keys:
        event = await fetch({key})
        if isinstance(event, GatherDepSuccessEvent):
            data |= event.data
        elif isinstance(event, GatherDepFailureEvent):
            _, error, _ = clean_exception(event.exception.data)
            assert error is not None
            data[key] = Unreadable(error)
        else:
            return event
    return GatherDepSuccessEvent(
        worker=failed.worker,
        total_nbytes=failed.total_nbytes,
        data=data,
        stimulus_id=failed.stimulus_id,
    )
