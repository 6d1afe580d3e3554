"""What asks for a worker's memory: tasks, results to be received, and results to be sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from dask.typing import Key
from distributed.worker_state_machine import TaskState

_FIRST: tuple[int, ...] = ()
"""The priority before all others."""


@dataclass(eq=False, slots=True)
class Running:
    """A task that is to run, and what it reads."""

    task: TaskState
    inputs: list[Key]
    nbytes: int
    """Of the inputs."""

    @classmethod
    def of(cls, task: TaskState) -> Running:
        """Return a task with the keys and sizes of its inputs."""
        reads = task.dependencies
        return cls(task, [each.key for each in reads], sum(each.get_nbytes() for each in reads))

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


Request = Running | Arriving | Leaving
