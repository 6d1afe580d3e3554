"""What a segment does with inputs of each kind that it has met: plans, or decisions without one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from gpusched import forks
from gpusched.dataclass import dataclass
from gpusched.graph.running import decisions
from gpusched.graph.running.decisions import AWAITED, Awaited, Direct, Plans, Waiting
from gpusched.graph.running.moved import Moved
from gpusched.newest import Newest
from gpusched.plan.plan import Plan

KINDS = 128
"""Kinds of inputs that one segment remembers; the oldest goes first."""
CONSTANTS = 1 << 20
"""Bytes of the arrays that their plans hold, if there are several such plans."""

PATIENCE = 0.02
"""Seconds for which other threads wait for a recording of inputs of the same kind. It takes some
milliseconds of Python's lock, which as many recordings as there are threads would share; where a
function computes much while it is recorded, they do not wait for it."""

Found = Plans | Direct | Waiting | Awaited


class Remembered:
    """By the kind of a segment's inputs (`Segment.key`), what is done with them.

    A key of None stands for inputs that cannot be compared, of which nothing is remembered.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self) -> None:
        self._found: Newest[Any, Found] = Newest(KINDS)
        self.get = self._found.get
        """Returns what is done with inputs of a kind; None if that is not known."""
        self.news = ""
        """Why the next inputs are recorded, where it is not for what they are."""
        self._lock = forks.lock()
        self.lasts = True
        """Whether what came of each recording has been kept."""
        self.unused = 0
        """How many more plans have been made than used again, of late; threads that count at once
        may miss one."""
        self._recorded: dict[Any, threading.Event] = {}
        """By the kind of inputs that are being recorded: set when it is known what comes of it."""

    def known(self, key: Any) -> Found | None:
        """Return what is done with inputs of a kind, also if another thread is finding it out."""
        found = self.get(key)
        if found is None and key is not None and self.lasts:
            event = self._recorded.get(key)
            if event is not None:
                event.wait(PATIENCE)
            # Also where there is none: it may have been found out since.
            found = self.get(key)
        return found

    @contextmanager
    def recording(self, key: Any) -> Iterator[None]:
        """Return a context in which it is found out what to do with inputs of a kind."""
        event = threading.Event()
        if key is not None:
            self._recorded.setdefault(key, event)
        try:
            yield
        finally:
            if self._recorded.get(key) is event:
                del self._recorded[key]
            event.set()

    def add(self, key: Any, found: Found) -> None:
        """Keep what is to be done with inputs of a kind."""
        if key is None:
            return
        taken = held(found)
        with self._lock:
            while taken and sum(map(held, self._found.values())) > max(CONSTANTS - taken, 0):
                self._found.popitem(last=False)
            self._found[key] = found

    def held_last(self, key: Any, plans: Plans, plan: Plan) -> None:
        """Note which of some plans has held, so that it is tried first."""
        with self._lock:
            # What functions read may have changed since, so that these hold no more.
            if self._found.get(key) is plans:
                self._found[key] = plans.first(plan)

    def forget(self, key: Any) -> None:
        """Forget what is done with inputs of a kind."""
        with self._lock:
            self._found.pop(key, None)

    def instead(self, key: Any) -> Remembered:
        """Return what to go by from now on, as what functions read from outside is not the same.

        Parameters
        ----------
        key
            Equal where what is remembered is the same, for other segments as well; None if that is
            not known.
        """
        made = Remembered()
        made.news = decisions.CHANGED if self._found else self.news
        if key is None:
            return made
        found: Remembered = _by_content.setdefault(key, made)
        _by_content[key] = found  # Used again, it is kept for longer.
        return found

    def values(self) -> list[Found]:
        """Return what is remembered, the oldest first."""
        return [found for _, found in self._found.now()]

    def newness(self, key: Any) -> str:
        """Return what is new about inputs that are being recorded."""
        with self._lock:
            known, news, self.news = list(self._found), self.news, ""
        if key is None:
            return decisions.UNCOMPARABLE
        if self._found.get(key) is AWAITED:
            return news or decisions.AGAIN
        if news or key in known:
            return news or decisions.COMPILED
        alike = [each for each in known if (each[0] is Moved) == (key[0] is Moved)]
        pairs = [each[1] if each[0] is Moved else each for each in (key, *alike)]
        return decisions.newness(pairs[0], pairs[1:])


@dataclass(frozen=True)
class Content:
    """What programs do, without the functions of the user's that they call."""

    key: Any
    """Equal for the same; may go by the identity of what is held."""
    held: Any = field(compare=False)


CONTENTS = 256
"""Contents of segments, see there, whose plans are found again. A function may be another one for
each graph, if it is defined within another one, or for each task, if it was sent with something
that changes: with dask's overlap of 12 chunks and such a function, a graph takes 31 ms of processor
time rather than 50, and such a task 0.6 ms rather than 2.7 to 4."""

_by_content: Newest[Any, Remembered] = Newest(CONTENTS)


def held(found: Found) -> int:
    """Return the bytes of the arrays that plans hold."""
    plans = found.plans if isinstance(found, Plans) else ()
    return sum(int(array.nbytes) for plan in plans for _, array in plan.constants)
