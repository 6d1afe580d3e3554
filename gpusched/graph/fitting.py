"""Whether the tasks of a graph fit where it will run, before any of them starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes

from gpusched.adapters.tasks import Task
from gpusched.graph.joins import copied

if TYPE_CHECKING:
    from gpusched.graph.sizes import Sizes  # Imports dask.array, which clusters start without.

_room: ContextVar[int | None] = ContextVar("gpusched-room", default=None)


class DoesNotFitError(MemoryError):
    """A task needs more memory than its worker may have."""


@contextmanager
def refusing(room: int | None) -> Iterator[None]:
    """Refuse graphs with tasks that need more memory than a worker may have.

    Parameters
    ----------
    room
        Bytes that each worker may have; None refuses nothing.

    Notes
    -----
    Holds for what this thread or coroutine does in the block, and what it gives to threads with
    its context.

    Examples
    --------
    >>> import dask, dask.array as da, gpusched
    >>> from gpusched.graph.fitting import DoesNotFitError, refusing
    >>> x = da.ones(100_000) + 1
    >>> try:
    ...     with gpusched.enable(), refusing(1000):
    ...         dask.optimize(x)
    ... except DoesNotFitError:
    ...     "refused"
    'refused'
    """
    token = _room.set(room)
    try:
        yield
    finally:
        _room.reset(token)


def check(tasks: Mapping[Any, Any], sizes: Sizes) -> None:
    """Refuse a graph with a task that needs more memory, as far as is known, than there is.

    Parameters
    ----------
    tasks
        dask's nodes by key, put together as they are to run, before they are rewritten.
    sizes
        Of the chunks.

    Raises
    ------
    DoesNotFitError
        If there is such a task; what it needs, what there is, and what helps are in its text.
    """
    room = _room.get()
    if room is None:
        return
    needs = {key: _need(tasks, key, sizes) for key, node in tasks.items() if isinstance(node, Task)}
    key = max(needs, key=lambda each: sum(needs[each]), default=None)
    if key is not None and sum(needs[key]) > room:
        inputs, extra = needs[key]
        too_large = sum(sum(need) > room for need in needs.values())
        raise DoesNotFitError(
            f"{too_large} of the graph's {len(tasks):,} tasks cannot fit: {key!r} needs "
            f"{format_bytes(inputs + extra)} at once ({format_bytes(inputs)} of inputs, and "
            f"{format_bytes(extra)} that it makes), and a worker may have {format_bytes(room)}. "
            f"Use smaller chunks, or a larger memory limit; without gpusched.memory.strict it is "
            f"tried all the same"
        )


def _need(tasks: Mapping[Any, Any], key: Any, sizes: Sizes) -> tuple[int, int]:
    """Return the bytes of a task's inputs, and those that it takes besides, as far as known."""
    node = tasks[key]
    whole = copied(node)
    inputs = {each: sizes.within(tasks, each) or 0 for each in node.dependencies}
    # Workers lend those one after the other.
    largest = max((inputs[each] for each in whole if each in inputs), default=0)
    staying = sum(size for each, size in inputs.items() if each not in whole)
    return staying + largest, sizes.known_extra(node)
