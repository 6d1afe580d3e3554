"""What every policy has in this process: one guard, through which all its calls go."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpusched.threadsafe import registry
from gpusched.threadsafe.counts import Counts
from gpusched.threadsafe.policies import Policy
from gpusched.threadsafe.proxy_operations import Operation, call
from gpusched.threadsafe.unreferenced_handles import Unreferenced

if TYPE_CHECKING:
    from gpusched.threadsafe.handle_classes import Package
    from gpusched.threadsafe.threads import Thread


of_each: dict[Policy, Counts] = {}
"""The counts of policies with ``each``, which the guards of all their handles share."""


class Made:
    """What a wrapped function has returned, with the guard that it got already."""

    __slots__ = ("guard", "value")

    def __init__(self, value: Any, guard: Guard) -> None:
        self.value = value
        self.guard = guard


def is_maker(value: Any) -> bool:
    """Return whether a callable makes handles: a class, function or class method, no method."""
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        return isinstance(value.__self__, (type, types.ModuleType, types.NoneType))
    return isinstance(value, (type, types.FunctionType))


class Guard:
    """Carries out operations on what is wrapped, as one policy says.

    What a proxy holds of the wrapped object is its *target*: the object itself where all threads
    share it (``shares``), and otherwise a `gpusched.threadsafe.proxy_targets.Target`.

    Notes
    -----
    Thread-safe. Two guards of one policy are the same, but for those of a policy with ``each``.
    """

    shares = True

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        each = getattr(policy, "each", False)
        self.counts = of_each.setdefault(policy, Counts()) if each else Counts()
        self.unreferenced = Unreferenced()

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Return ``operation(object, *args)`` for the object of a target."""
        raise NotImplementedError

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Return what the object of a target returns, called with these arguments."""
        return self.apply(target, call, args, kwargs)

    def target(self, value: Any) -> Any:
        """Return the target of an object that is about to be wrapped."""
        return value

    def of_handle(self) -> Guard:
        """Return the guard of what a wrapped function has returned."""
        if not getattr(self.policy, "each", False):
            return self
        return registry.register(type(self)(self.policy))

    def delete(self) -> None:
        """Delete handles that nobody refers to any more, or leave it to who is inside.

        Called while objects are deleted, at any moment and in any thread, so it never waits.
        """
        self.unreferenced.forget()

    def holders(self) -> Iterable[Thread]:
        """Return the threads that are inside."""
        raise NotImplementedError

    def give_up(self, thread: Thread) -> bool:
        """Release what a thread still holds; return whether that was anything."""
        return False

    def close(self) -> None:
        """End the threads and processes of this guard; the next call starts them again."""

    def forget_others(self) -> None:
        """Start again in a forked process, which has one thread."""
        self.__init__(self.policy)  # type: ignore[misc]

    def __str__(self) -> str:
        return str(self.policy)
