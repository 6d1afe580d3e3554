"""A ledger of one memory: what is in it, what running tasks may still take, and who may start.

What is received and what is read to be sent asks it as tasks do.

Pure: what is observed goes in, decisions come out. `gpusched.workers.memory.admit` carries them
out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from dask.typing import Key
from dask.utils import format_bytes

from gpusched.store.statistics import Committed

SLIGHT = 1 / 1000
"""Share of the limit that a task may need to start at once: it is within the margin."""


class Verdict(Enum):
    """What becomes of the first task that waits."""

    START = "start"
    PIECES = "start all the same, a task on parts of its chunks, since it does not fit as a whole"
    SPILL = "spill first"
    WAIT = "wait"
    REFUSE = "refuse"


class Need(NamedTuple):
    """What a task needs of a memory.

    Examples
    --------
    >>> from gpusched.workers.memory.ledger import Need
    >>> Need(extra=100, absent=20).total
    120
    """

    extra: int
    """Bytes that it takes at most besides its inputs, its result included."""
    absent: int = 0
    """Bytes of inputs that have to be brought into the memory first."""
    least: int = 0
    """Bytes that it needs alone, its inputs included, for it to be refused where that is too much;
    0 if it is not to be."""
    root: bool = False
    """Whether it reads no results, so that it can only add to them."""
    outgoing: bool = False
    """Whether these are results that another worker has asked for, rather than a task."""

    @property
    def total(self) -> int:
        """The bytes that are reserved for it."""
        return self.extra + self.absent


class Decision(NamedTuple):
    """A verdict, and what belongs to it."""

    verdict: Verdict
    nbytes: int = 0
    """Bytes to spill."""
    reason: str = ""
    """What is waited for, or why a task is refused."""


START = Decision(Verdict.START)


class Ledger:
    """The bytes of one memory.

    Parameters
    ----------
    limit
        Bytes that may be taken, in so far as it is known before.
    hard
        Bytes that the process may not exceed: a task that needs more alone is refused.
    own
        Bytes that the process took before there were tasks.

    Notes
    -----
    Used on the worker's event loop only. Invariant: what is committed exceeds the limit by no
    decision to start, but for tasks that need next to nothing, for one that nothing runs beside,
    and for results that another worker has asked for while nothing runs. Those wait for no
    transfer, so that no two workers wait for each other.
    """

    def __init__(self, limit: int, hard: float = math.inf, own: int = 0) -> None:
        self.limit = limit
        self.slight = SLIGHT * limit
        """Bytes that a task may need to start at once."""
        self.hard = hard
        self.own = own
        self.held = 0
        """Bytes of results."""
        self.in_flight = 0
        """Bytes of results that are being received."""
        self.unmanaged = own
        """Bytes that nothing here accounts for: modules, caches, other threads, fragments."""
        self.resident: int | None = None
        """Bytes that the process takes, where that is known."""
        self.fullest = Committed(limit)
        """What was committed when that was most."""
        self.spilling = False
        self.disk_full = False
        """Whether results were left in memory as no file could be written."""
        self.needs: dict[Key, Need] = {}
        """What each running task may still take."""
        self.seceded: Collection[Key] = ()
        """Those of them that wait for other tasks, and so end none that waits for them to end."""
        self.granted = 0
        """The bytes that have ever been reserved, or received."""
        self._exhausted = False

    @property
    def reserved(self) -> int:
        """The bytes that running tasks may still take."""
        return sum(extra + absent for extra, absent, *_ in self.needs.values())

    @property
    def committed(self) -> int:
        """The bytes that are taken, and those that may be."""
        return self.held + self.in_flight + self.unmanaged + self.reserved

    @property
    def most(self) -> int:
        """The most bytes that were ever committed."""
        return self.fullest.total

    @property
    def running(self) -> int:
        """The number of running tasks that do not wait for others."""
        return sum(key not in self.seceded for key in self.needs)

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing is received or read to be sent."""
        return not self.needs and not self.in_flight

    @property
    def consuming(self) -> bool:
        """Whether tasks run that read results, or results are received that tasks will read."""
        reads = (not need.root and key not in self.seceded for key, need in self.needs.items())
        return self.in_flight > 0 or any(reads)

    def observe(
        self, held: int, in_flight: int, resident: int | None = None, before: int | None = None
    ) -> None:
        """Take the present sizes.

        Parameters
        ----------
        held, in_flight, resident
            The bytes.
        before
            What was held before the process was looked at, if other threads move results.

        Notes
        -----
        What is unmanaged is not known while tasks run, since they have taken any part of what is
        reserved for them. It is kept between the bounds that follow from both, and is never less
        than what the process takes for itself: results that share memory are counted for each.
        """
        self.held, self.in_flight, self.resident = held, in_flight, resident
        if resident is None:
            return
        before = held if before is None else before
        least = resident - max(held, before) - in_flight - self.reserved
        most = resident - min(held, before)
        self.unmanaged = max(self.own, min(max(self.unmanaged, least), most))

    def is_slight(self, need: Need) -> bool:
        """Return whether a need is granted whatever the present sizes are."""
        return need.extra + need.absent <= self.slight and not (
            need.least and self._is_too_large(need)
        )

    def _is_too_large(self, need: Need) -> bool:
        return need.least > 0 and need.least + self.own > self.hard

    def decide(self, need: Need, spillable: int, patient: bool = True) -> Decision:
        """Return what becomes of the first task, or transfer, that waits.

        Parameters
        ----------
        need
            What it needs.
        spillable
            Bytes of results that may be moved out of the memory.
        patient
            Whether it has not waited for so long that reservations are no longer believed where
            the process takes less.
        """
        if self._is_too_large(need):
            return Decision(Verdict.REFUSE, reason=self._refusal(need))
        short = self.committed + need.total - self.limit
        if short <= 0 or self.is_slight(need):
            return START
        if self.spilling:
            return Decision(Verdict.WAIT, reason="spilling")
        if need.root and not need.outgoing and self.consuming:
            # Results that these have read may go without being written.
            return Decision(Verdict.WAIT, reason="consumers of earlier results")
        if spillable > 0 and not self._exhausted:
            return Decision(Verdict.SPILL, min(short, spillable))
        if not patient and (need.outgoing or self._fits_as_measured(need)):
            return START
        if self.running:
            return Decision(Verdict.WAIT, reason="running tasks")
        if need.outgoing:
            # What is being received may come from a worker that waits for these in its turn.
            return Decision(Verdict.PIECES)
        if self.in_flight:
            return Decision(Verdict.WAIT, reason="transfers")
        if spillable > 0 and self.disk_full:
            # Results that stay in memory would be lost with the process that took too much.
            return Decision(Verdict.WAIT, reason="space on the disk")
        return Decision(Verdict.PIECES)

    def start(self, key: Key, need: Need) -> None:
        """Reserve what a task needs, until it has finished."""
        nbytes = need.extra + need.absent
        self.needs[key] = need
        self.granted += nbytes
        if nbytes > self.slight:
            self.note_most()

    def receive(self, nbytes: int) -> None:
        """Note that results are being received."""
        self.in_flight += nbytes
        self.granted += nbytes
        self.note_most()

    def reserved_for(self, key: Key) -> int:
        """Return the bytes that a running task may still take."""
        need = self.needs.get(key)
        return 0 if need is None else need.total

    def loaded(self, key: Key, absent: int = 0) -> None:
        """Note that a task's inputs are in the memory, among the results, but for some bytes."""
        need = self.needs.get(key)
        if need is not None:
            self.needs[key] = need._replace(absent=absent)

    def finish(self, key: Key) -> None:
        """Give back what is reserved for a task; nothing happens if that is nothing."""
        if self.needs.pop(key, None) is not None:
            self._exhausted = False

    def begin_spill(self) -> None:
        """Note that results are being moved out of the memory."""
        self.spilling = True

    def end_spill(self, moved: int, disk_full: bool = False) -> None:
        """Note how many bytes were; after none, no more is tried until something has changed.

        Parameters
        ----------
        moved
            The bytes.
        disk_full
            Whether there were not more because no file could be written.
        """
        self.spilling = False
        self.disk_full = disk_full
        self._exhausted = not moved

    def try_again(self) -> None:
        """Have the next decision spill, as a disk that was full may have space by now."""
        self._exhausted = False

    def note_most(self) -> None:
        """Keep what is committed now, if it never was more."""
        found = Committed(self.limit, self.held, self.in_flight, self.reserved, self.unmanaged)
        if found.total > self.most:
            self.fullest = found

    def _fits_as_measured(self, need: Need) -> bool:
        return self.resident is not None and self.resident + need.total <= self.limit

    def _refusal(self, need: Need) -> str:
        beside = f", besides {format_bytes(self.own)} that it takes itself" if self.own else ""
        return (
            f"it needs {format_bytes(need.least)} at once, and the worker has "
            f"{format_bytes(max(0, int(self.hard) - self.own))} for a task{beside}. Use smaller "
            f"chunks, or a larger memory limit"
        )
