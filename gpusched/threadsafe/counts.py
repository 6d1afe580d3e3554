"""How much threads got in each other's way, by policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace


@dataclass
class Counts:
    """What one policy has cost in this process.

    Notes
    -----
    Written under the policy's own lock, or that of `waits`; a reader may see one field newer than
    another. ``calls`` may miss some where there is no such lock: in policies with ``each``, and in
    ``per_thread``.
    """

    calls: int = 0
    """Calls that entered; a call from within another one is part of that."""
    waits: int = 0
    """Calls that found the policy taken."""
    wait_seconds: float = 0.0
    """Seconds they waited, summed over threads."""
    longest_wait_seconds: float = 0.0
    """Seconds of the longest wait."""
    deadlocks: int = 0
    """Waits refused, since they would never have ended."""
    abandoned: int = 0
    """Times it was taken from a thread that had ended, or from a task that had not given it up."""

    def waited(self, seconds: float) -> None:
        """Count a wait."""
        self.waits += 1
        self.wait_seconds += seconds
        self.longest_wait_seconds = max(self.longest_wait_seconds, seconds)


_sources: list[Callable[[], Iterable[tuple[str, Counts]]]] = []
"""Give the policies' names with their counts."""


def statistics() -> dict[str, Counts]:
    """Return what each policy has cost in this process since it was first used.

    Returns
    -------
    dict
        `Counts` by the policy's name and kind, such as ``"lock(hdf5)"``. What has been wrapped
        with ``each=True`` is summed.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> double = threadsafe.wrap(lambda x: 2 * x, threadsafe.lock("doubling"))
    >>> double(21)
    42
    >>> threadsafe.statistics()["lock(doubling)"].calls
    1
    """
    found: dict[str, Counts] = {}
    for source in _sources:
        for name, counts in source():
            found[name] = _sum(found[name], counts) if name in found else replace(counts)
    return found


def _sum(first: Counts, second: Counts) -> Counts:
    return Counts(
        first.calls + second.calls,
        first.waits + second.waits,
        first.wait_seconds + second.wait_seconds,
        max(first.longest_wait_seconds, second.longest_wait_seconds),
        first.deadlocks + second.deadlocks,
        first.abandoned + second.abandoned,
    )


def totals() -> dict[str, float]:
    """Return the sums over all policies, for a worker's metrics.

    Examples
    --------
    >>> from gpusched.threadsafe.counts import totals
    >>> sorted(totals())
    ['abandoned', 'calls', 'deadlocks', 'longest_wait_seconds', 'wait_seconds', 'waits']
    """
    total = Counts()
    for counts in statistics().values():
        total = _sum(total, counts)
    return dict(vars(total))
