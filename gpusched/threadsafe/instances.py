"""An instance for each thread or device."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.locks import LockGuard
from gpusched.threadsafe.policies import Lock, Policy
from gpusched.threadsafe.proxy_operations import Operation
from gpusched.threadsafe.proxy_targets import Again, ByKey, ByThread, Copy, Instances, _Found
from gpusched.threadsafe.threads import Thread

_CALLED = (type, types.BuiltinFunctionType, types.FunctionType, types.MethodType, types.ModuleType)
"""What is not copied itself; what calling it returns is made once more instead."""


class PerThreadGuard(Guard):
    """Gives each thread an instance of its own.

    Notes
    -----
    Thread-safe; nothing is shared, so nothing waits.
    """

    shares = False

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Carry out an operation on this thread's instance."""
        self.counts.calls += 1
        return operation(_here(target), *args)

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Call this thread's instance; a handle is made again in each thread that uses it."""
        self.counts.calls += 1
        function = _here(target)
        made = function(*args, **kwargs)
        if isinstance(target, Instances) or not package.is_handle(made):
            return made
        return self._instances(Again(function, args, kwargs), made)

    def target(self, value: Any) -> Any:
        """Return a target that copies the object for each thread but this one."""
        if isinstance(value, (Instances, *_CALLED)):
            return value
        make = Copy(value)
        return self._instances(make, make())

    def _found(self) -> _Found:
        return ByThread()

    def _instances(self, make: Any, first: Any) -> Instances:
        found = self._found()
        found.keep(first)
        return Instances(make, found, first)

    def restore(self, make: Any, first: type) -> Instances:
        """Return the target that another process had, without an instance yet."""
        target = Instances(make, self._found(), None)
        target._first = first
        return target

    def holders(self) -> Iterable[Thread]:
        """Return no threads, since none ever waits for another."""
        return ()


class PerDeviceGuard(PerThreadGuard):
    """Gives each device an instance of its own, which one thread uses at a time.

    Notes
    -----
    Thread-safe. A device's lock is held while its instance is made, too.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._locks: dict[str, LockGuard] = {}

    def _lock(self) -> LockGuard:
        device = current_device()
        found = self._locks.get(device)
        if found is None:
            new = LockGuard(Lock(f"{self.policy.name or 'device'} on {device}"))
            # All devices' counts are this policy's. Atomic: of two new ones, the first is kept.
            new.counts = self.counts
            found = self._locks.setdefault(device, new)
        return found

    def apply(self, target: Any, operation: Operation, *args: Any) -> Any:
        """Carry out an operation on the current device's instance, under that device's lock."""
        return self._lock().apply(None, lambda _: operation(_here(target), *args))

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Call the device's instance; a handle is made again on each device that uses it."""
        made = self._lock().apply(None, lambda _: _here(target)(*args, **kwargs))
        if isinstance(target, Instances) or not package.is_handle(made):
            return made
        return self._instances(Again(target, args, kwargs), made)

    def _found(self) -> _Found:
        return ByKey(current_device)

    def holders(self) -> Iterable[Thread]:
        """Return the threads that hold a device's lock."""
        return [holder for lock in self._locks.values() for holder in lock.holders()]

    def give_up(self, thread: Thread) -> bool:
        """Release the locks of all devices that a thread which has ended still holds."""
        # In a list, since each of them must give up.
        return any([lock.give_up(thread) for lock in self._locks.values()])


def _here(target: Any) -> Any:
    return target.here() if isinstance(target, Instances) else target


def current_device() -> str:
    """Return the name of the CUDA device that this thread uses now, or "cpu".

    Asks the libraries that are loaded already; without one of them nothing uses a GPU.
    """
    cupy = sys.modules.get("cupy")
    if cupy is not None and cupy.cuda.is_available():
        return f"cuda:{cupy.cuda.runtime.getDevice()}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"
