"""What the compile service has to do, and in which order; decided without a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from gpusched.dataclass import dataclass

TRIES = 2
"""How often a kernel is begun whose worker dies of it."""


@dataclass
class Job:
    """A kernel to be compiled."""

    key: str
    """Of its machine code."""
    request: dict[str, Any]
    """The first message that asked for it."""
    waiting: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By client and number of the request, whether tasks wait for it."""
    left: bool = False
    """Whether somebody has asked for it who is gone: no task of theirs is delayed by it."""
    gain: float = 0.0
    """Seconds that all clients expect to be saved."""
    urgent: bool = False
    """Whether that is more than a compilation beside their tasks costs."""
    running: bool = False
    idly: bool = False
    """Whether only by who works where the machine has nothing else to do."""
    tries: int = 0

    @property
    def name(self) -> str:
        """The kernel's, for people."""
        return str(self.request.get("name", self.key))

    @property
    def awaited(self) -> int:
        """How many tasks or processes wait for it."""
        return sum(self.waiting.values())

    @property
    def rank(self) -> tuple[int, bool, float, int]:
        """What is compiled first: what most wait for, then what saves most."""
        return self.awaited, self.urgent, self.gain, len(self.waiting)


class Jobs:
    """The jobs of a service, each kernel once.

    Examples
    --------
    >>> from gpusched.store.service.jobs import Jobs
    >>> jobs = Jobs()
    >>> jobs.add((0, 1), {"key": "a", "gain": 1.0}), jobs.add((1, 1), {"key": "b", "gain": 2.0})
    (True, True)
    >>> jobs.take(idle=True).key
    'b'
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs, those first that are worked at, and then in the order of their turns."""
        ordered = sorted(self._jobs.values(), key=lambda job: job.rank, reverse=True)
        return iter(sorted(ordered, key=lambda job: not job.running))

    def add(self, asking: tuple[int, int] | None, request: dict[str, Any]) -> bool:
        """Take a request; return whether it is for a kernel that nobody had asked for.

        Parameters
        ----------
        asking
            The client, and the number it gave the request; None if it is gone.
        request
            Its message.
        """
        key = str(request["key"])
        new = key not in self._jobs
        job = self._jobs.setdefault(key, Job(key, request))
        if asking is None:
            job.left = True
        else:
            job.waiting[asking] = bool(request.get("awaited", False))
        job.gain += float(request.get("gain", 0.0))
        job.urgent |= bool(request.get("urgent", False))
        return new

    def take(self, idle: bool) -> Job | None:
        """Return what is to be compiled next, or None.

        Parameters
        ----------
        idle
            Whether who takes it works only where the machine has nothing else to do. Such a one
            leaves to others what is urgent, unless tasks wait for it; others begin once more what
            has become urgent since.
        """
        fits = _fits_idle if idle else _fits
        ready = (job for job in self._jobs.values() if fits(job))
        found = max(ready, key=lambda job: job.rank, default=None)
        if found is not None:
            found.idly = idle
            found.running = True
            found.tries += 1
        return found

    def urge(self, name: str, gain: float) -> None:
        """Let what is left of a kernel's compilation be urgent."""
        for job in self._jobs.values():
            if job.name == name:
                job.urgent = True
                job.gain += gain

    def is_wanted(self, job: Job) -> bool:
        """Return whether nobody has done a job yet."""
        return self._jobs.get(job.key) is job

    def finish(self, job: Job) -> list[tuple[int, int]]:
        """Forget a job that is done; return who has asked for it."""
        self._jobs.pop(job.key, None)
        return list(job.waiting)

    def give_back(self, job: Job) -> bool:
        """Let another try a job whose worker has died; return whether it may be tried again."""
        job.running = False
        return job.tries < TRIES

    def leave(self, client: int) -> None:
        """Forget a client; what it has asked for is compiled all the same, for the next run."""
        for job in self._jobs.values():
            for asking in [each for each in job.waiting if each[0] == client]:
                del job.waiting[asking]
                job.left = job.left or not job.waiting


def _fits(job: Job) -> bool:
    # Whoever asks again, in the next run of a program, finds it begun rather than put off.
    wanted = job.urgent or job.awaited or job.left
    return bool(wanted) and (not job.running or job.idly)


def _fits_idle(job: Job) -> bool:
    return not job.running and (not job.urgent or job.awaited > 0)
