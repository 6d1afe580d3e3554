"""Whether the tasks of a graph fit where it will run, before any of them starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
from dask.utils import format_bytes

from gpusched.adapters.tasks import Task
from gpusched.dataclass import dataclass
from gpusched.graph.subgraph import at_once, copied

if TYPE_CHECKING:
    # They import dask.array, and clusters start without.
    from gpusched.graph.passes.sizes import Sizes

OWN = 200 << 20
"""Bytes that a worker's process takes for itself, with numba and NumPy loaded; where there is one,
it says itself."""
_SMALL = 1 << 20
"""Bytes that a task may take without saying so."""
MARGIN = 0.05
"""Share of the memory limit that is left for what cannot be foreseen."""

DECLARED = "gpusched-memory"
"""The annotation that says what a task needs, where no program says it: a `Needed`."""


class Needed(NamedTuple):
    """The bytes that a task needs, as far as is known."""

    extra: int | None
    """What it takes besides its inputs, its result included, where its calls are made one by one,
    as they are until kernels are compiled; what a function allocates for itself is not counted.
    None if nothing is known."""
    whole: bool = True
    """Whether the sizes of all results are known; those that are not count nothing."""
    inputs: int = 0
    """Of its inputs; of those that workers lend one after the other, the largest."""
    least: int = 0
    """What it surely needs, its inputs included, where no worker survives that; else 0."""

    @property
    def total(self) -> int:
        """All that is known of it."""
        return self.inputs + (self.extra or 0)


@dataclass
class Noted:
    """What graphs may take that are optimised meanwhile, and what is noted of their tasks."""

    most: float = math.inf
    """Bytes that a task may need for a worker to survive it: of those that surely need more, it is
    noted what."""
    room: int | None = None
    """Bytes that each worker may have: a graph with a task that needs more is refused; None refuses
    nothing."""
    declared: dict[Any, Needed] = field(default_factory=dict)
    """What tasks take, by key."""


_noted: ContextVar[Noted | None] = ContextVar("gpusched-noted", default=None)


class DoesNotFitError(MemoryError):
    """A task needs more memory than its worker may have."""


@contextmanager
def noting(most: float = math.inf, room: int | None = None) -> Iterator[None]:
    """Note what tasks of graphs take that are optimised meanwhile, for `noted`; or refuse graphs.

    Parameters
    ----------
    most, room
        As `Noted` has them.

    Notes
    -----
    Holds for what this thread or coroutine does in the block, and what it gives to threads with
    its context.

    Examples
    --------
    >>> import dask, dask.array as da, gpusched
    >>> from gpusched.graph.passes.fitting import DoesNotFitError, noting
    >>> x = da.ones(100_000) + 1
    >>> try:
    ...     with gpusched.enable(), noting(room=1000):
    ...         dask.optimize(x)
    ... except DoesNotFitError:
    ...     "refused"
    'refused'
    """
    token = _noted.set(Noted(most, room))
    try:
        yield
    finally:
        _noted.reset(token)


def noted() -> Noted | None:
    """Return what is noted here; None if nothing is."""
    return _noted.get()


def for_tasks(memory_limit: int, own: int = 0, pause: float | bool | None = None) -> int:
    """Return the host memory that a worker has for its tasks, their inputs and results included.

    What `gpusched.explain` says that it fits, what is refused and what workers start is all decided
    by this.

    Parameters
    ----------
    memory_limit
        Bytes that the worker may take.
    own
        Bytes that its process takes for itself.
    pause
        The share of the limit at which it starts no more tasks; False if there is none. By default
        that of distributed's configuration here.

    Examples
    --------
    >>> from gpusched.graph.passes.fitting import for_tasks
    >>> for_tasks(1000, own=200, pause=0.8)
    550
    """
    if pause is None:
        pause = dask.config.get("distributed.worker.memory.pause", 0.8)
    return max(0, int(((pause or 1.0) - MARGIN) * memory_limit) - own)


def survived(memory_limit: int, own: int, terminate: float | bool | None = None) -> float:
    """Return the host memory that a task may need alone for its worker to survive it, if barely.

    Parameters
    ----------
    memory_limit, own
        As in `for_tasks`.
    terminate
        The share of the limit at which nannies end a worker; False if they do not, so that nothing
        surely ends it. By default that of distributed's configuration here.

    Examples
    --------
    >>> from gpusched.graph.passes.fitting import survived
    >>> survived(1000, own=200, terminate=0.95), survived(1000, own=200, terminate=False)
    (750, inf)
    """
    if terminate is None:
        terminate = dask.config.get("distributed.worker.memory.terminate", 0.95)
    return max(0, int(terminate * memory_limit) - own) if terminate else math.inf


def own_bytes(nanny: Any, metrics: Mapping[str, Any]) -> int:
    """Return the bytes that a worker's process takes for itself, by what it has reported.

    Parameters
    ----------
    nanny
        Its nanny; without one it is in a process of somebody else's, of which that says nothing.
    metrics
        Of its last heartbeat; empty if there was none.

    Examples
    --------
    >>> from gpusched.graph.passes.fitting import own_bytes
    >>> own_bytes("tcp://10.0.0.1:1", {"memory": 500, "managed_bytes": 300})
    200
    """
    reported = metrics.get("gpusched", {}).get("memory", {})
    if "own_bytes" in reported:
        return int(reported["own_bytes"])
    if not nanny:
        return 0
    if not {"memory", "managed_bytes"} <= metrics.keys():
        return OWN
    return max(0, int(metrics["memory"]) - int(metrics["managed_bytes"]))


def needed(tasks: Mapping[Any, Any], node: Any, sizes: Sizes) -> Needed:
    """Return what a task needs, as far as is known.

    Parameters
    ----------
    tasks
        dask's nodes by key, put together as they are to run, before they are rewritten.
    node
        The task.
    sizes
        Of the chunks.
    """
    inputs = at_once(node.dependencies, copied(node), lambda key: sizes.of_result(tasks, key) or 0)
    return sizes.taken(tasks, node)._replace(inputs=inputs)


def note(tasks: Mapping[Any, Any], rewritten: Mapping[Any, Any], sizes: Sizes) -> None:
    """Note what tasks take of which no program says it, and those that fit nowhere.

    Parameters
    ----------
    tasks, sizes
        As `needed` has them.
    rewritten
        The nodes as they will run, by key.
    """
    noting = _noted.get()
    if noting is None:
        return
    from gpusched.graph.passes.certain import Certain

    certain = Certain(tasks)
    kinds: dict[Any, tuple[Needed, bool]] = {}
    for key, node in tasks.items():
        if not isinstance(node, Task) or key not in rewritten:
            continue
        # Those of a layer that read as much need as much, by the largest chunk of each layer.
        kind = key[0] if type(key) is tuple else key, len(node.dependencies)
        if kind not in kinds:
            most = needed(tasks, node, sizes)
            inputs = sum(sizes.of_result(tasks, each) or 0 for each in node.dependencies)
            # Workers expect of others that they take as much as their inputs do.
            kinds[kind] = most, most.whole and most.total - most.inputs > max(inputs, _SMALL)
        most, larger = kinds[kind]
        least = certain.least(node) if most.total > noting.most else 0
        said = hasattr(getattr(rewritten[key], "func", None), "remaining")
        if least > noting.most or (larger and not said):
            noting.declared[key] = most._replace(least=least if least > noting.most else 0)


def check(tasks: Mapping[Any, Any], sizes: Sizes) -> None:
    """Refuse a graph with a task that needs more memory, as far as is known, than there is.

    Parameters
    ----------
    tasks, sizes
        As `needed` has them.

    Raises
    ------
    DoesNotFitError
        If there is such a task; what it needs, what there is, and what helps are in its text.
    """
    here = noted()
    room = here.room if here is not None else None
    if room is None:
        return
    needs = {
        key: needed(tasks, node, sizes) for key, node in tasks.items() if isinstance(node, Task)
    }
    key = max(needs, key=lambda each: needs[each].total, default=None)
    if key is not None and needs[key].total > room:
        most = needs[key]
        too_large = sum(each.total > room for each in needs.values())
        raise DoesNotFitError(
            f"{too_large} of the graph's {len(tasks):,} tasks cannot fit: {key!r} needs "
            f"{format_bytes(most.total)} at once ({format_bytes(most.inputs)} of inputs, and "
            f"{format_bytes(most.total - most.inputs)} that it makes), and a worker has "
            f"{format_bytes(room)} for tasks. Use smaller chunks, or a larger memory limit; "
            f"without gpusched.memory.strict it is tried all the same"
        )
