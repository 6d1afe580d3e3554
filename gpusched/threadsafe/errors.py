"""What goes wrong between threads."""

from __future__ import annotations


class DeadlockError(RuntimeError):
    """A wait that would never end, since those waited for wait for this thread."""


class BlockedLoopError(RuntimeError):
    """A wait on a thread whose event loop must go on."""


class TaskCancelledError(RuntimeError):
    """The task that waited is not wanted any more."""


class ChildError(RuntimeError):
    """The child process of the policy ``process`` ended, or did not start in time."""
