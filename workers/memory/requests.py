"""What asks for a worker's memory: tasks, results to be received, and results to be sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.worker_state_machine import TaskState

from gpusched.workers.memory.streamed_inputs import lendable

if TYPE_CHECKING:
    from gpusched.workers.memory.store import Store

_FIRST: tuple[int, ...] = ()
"""The priority before all others."""


@dataclass(eq=False, slots=True)
class Running:
    """A task that is to run, and what it reads."""

    task: TaskState
    inputs: list[Key]
    """The keys of results that stay in memory meanwhile."""
    nbytes: int
    """Of all its inputs."""
    lent: list[Key] = field(default_factory=list)
    """The keys of results that it gets one by one, from where they are."""
    largest: int = 0
    """Bytes of the largest of those."""
    copies: bool = False
    """Whether it may copy inputs into the memory that are elsewhere while it runs."""
    before: int | None = None
    """Bytes that the process took when this began to run; None if nobody looked."""
    most: int = 0
    """The most that it took since."""
    beside: int = 0
    """Bytes that others, which have run or arrived meanwhile, may have taken of that."""

    @property
    def taken(self) -> int:
        """Bytes that it has taken at least, its result included, but for inputs lent to it."""
        return 0 if self.before is None else self.most - self.before - self.beside - self.largest

    @classmethod
    def of(cls, task: TaskState, store: Store | None) -> Running:
        """Return a task with the keys and sizes of its inputs.

        Parameters
        ----------
        task
            The task.
        store
            What may lend inputs one by one; None if none does.
        """
        sizes = {each.key: each.get_nbytes() for each in task.dependencies}
        found = cls(task, list(sizes), sum(sizes.values()))
        lent = lendable(task, store) if sizes and store is not None else []
        if lent:
            found.lent = [each.key for each in lent]
            found.inputs = [key for key in sizes if key not in found.lent]
            found.largest = max(sizes[key] for key in found.lent)
        return found

    @property
    def priority(self) -> Any:
        """dask's."""
        return self.task.priority

    @property
    def gone(self) -> bool:
        """Whether nobody wants the task any more."""
        return self.task.state not in ("executing", "long-running")


@dataclass(eq=False, slots=True)
class Arriving:
    """Results that are to be received from another worker."""

    worker: str
    """Its address; nothing else is received from it meanwhile."""
    tasks: list[TaskState]
    nbytes: int
    priority: Any = None
    """The first of those of the tasks that read them."""

    inputs = ()

    def __post_init__(self) -> None:
        """Find the priority."""
        read_by = (reader.priority for task in self.tasks for reader in task.waiters)
        own = (task.priority for task in self.tasks)
        self.priority = min(filter(None, read_by), default=min(filter(None, own), default=_FIRST))

    @property
    def gone(self) -> bool:
        """Whether nobody wants any of them any more."""
        return all(task.state == "cancelled" for task in self.tasks)


@dataclass(eq=False, slots=True)
class Leaving:
    """Results that another worker or a client has asked for.

    They come before all else: whoever has asked has made room for them.
    """

    key: Key
    """Of what is reserved for them; no task has it."""
    inputs: Collection[Key]
    """The results."""

    priority = _FIRST
    gone = False
    copies = False


Request = Running | Arriving | Leaving
