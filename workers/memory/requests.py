"""What asks for a worker's memory: tasks, results to be received, and results to be sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.worker_state_machine import TaskState

from gpusched.workers.memory.ledger import Decision
from gpusched.workers.memory.streamed_inputs import lendable

if TYPE_CHECKING:
    from gpusched.workers.memory.store import Store

_FIRST: tuple[int, ...] = ()
"""The priority before all others."""


@dataclass(eq=False, slots=True)
class Running:
    """A task that is to run, and what it reads."""

    task: TaskState
    key: Key
    spec: Any
    """What is run, as it was sent."""
    sizes: dict[Key, int]
    """Bytes of each of its inputs."""
    nbytes: int
    """Of all of them."""
    inputs: Collection[Key]
    """The keys of results that stay in memory meanwhile."""
    decision: Decision | None = None
    """What became of it; None if nobody wants it any more."""
    first: bool = True
    """Whether no other of its kind has ended."""
    slight: bool = False
    """Whether it is not, and needs so little that no more is asked."""
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
    """Bytes that others, which run or arrive at that time, may take of that, less those that had
    ever been granted by then."""

    @classmethod
    def of(cls, task: TaskState) -> Running:
        """Return a task with the keys and sizes of its inputs, whose specification is wrapped."""
        nbytes, sizes = 0, dict[Key, int]()
        for each in task.dependencies:
            sizes[each.key] = size = each.get_nbytes()
            nbytes += size
        spec: Any = task.run_spec
        return cls(task, task.key, spec.spec, sizes, nbytes, sizes)

    def taken(self, granted: int) -> int:
        """Return the bytes that it has taken at least, its result included.

        Inputs that are lent to it do not count.

        Parameters
        ----------
        granted
            Bytes that have ever been granted to all.
        """
        if self.before is None:
            return 0
        return self.most - self.before - self.beside - granted - self.largest

    def borrow(self, store: Store) -> None:
        """Have those inputs lent one by one that the task only copies into its result."""
        lent = [each.key for each in lendable(self.task, store)]
        if lent:
            self.lent = lent
            self.inputs = [key for key in self.sizes if key not in lent]
            self.largest = max(self.sizes[key] for key in lent)

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
