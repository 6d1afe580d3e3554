"""How long threads of this process have waited for each other, by policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PolicyWaits:
    """What a policy of `gpusched.threadsafe` has cost in this process so far."""

    policy: str
    """Its name and kind, such as ``lock(hdf5)``."""
    calls: int
    waits: int
    """Calls that found it taken."""
    seconds: float
    """That they waited, summed over threads."""
    longest: float
    """Seconds of the longest wait."""


def policy_waits() -> tuple[PolicyWaits, ...]:
    """Return the policies that threads have waited for, the longest first.

    Examples
    --------
    >>> from gpusched.inspection.contention import policy_waits
    >>> [each.policy for each in policy_waits() if not each.waits]
    []
    """
    from gpusched.threadsafe.counts import statistics

    found = [
        PolicyWaits(name, c.calls, c.waits, c.wait_seconds, c.longest_wait_seconds)
        for name, c in statistics().items()
        if c.waits
    ]
    return tuple(sorted(found, key=lambda each: -each.seconds))
