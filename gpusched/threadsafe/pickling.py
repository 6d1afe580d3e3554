"""Proxies on their way between processes: each takes the guard of the process it gets to."""

from __future__ import annotations

import importlib
import types
import weakref
from typing import Any

import cloudpickle

from gpusched import forks
from gpusched.threadsafe import proxy_operations
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.proxy import Proxy, _parts, _set_parts, build
from gpusched.threadsafe.proxy_targets import Instances, Target, Unloaded
from gpusched.threadsafe.registry import guard_for
from gpusched.threadsafe.specials import specials


def reduce(self: Proxy, protocol: Any = None) -> tuple[Any, ...]:
    """Return what pickling needs of a proxy."""
    target, guard, package = _parts(self)
    if isinstance(target, Instances):
        return restore, (cloudpickle.dumps((target.make, target.kind())), guard.policy, package)
    if isinstance(target, Target):
        content = getattr(target, "content", b"")
        if not content:
            raise TypeError(f"{self!r} is in a child of this process, and cannot be sent elsewhere")
        if isinstance(target, Unloaded):
            return restore_later, (content, guard.policy, package, target.known)
        return restore, (content, guard.policy, package)
    if isinstance(target, types.ModuleType):
        return restore, (cloudpickle.dumps(_Module(target.__name__)), guard.policy, package)
    if isinstance(target, (type, types.FunctionType, types.BuiltinFunctionType)):
        return restore, (cloudpickle.dumps(target), guard.policy, package)
    # Under the policy, for this runs the library's code.
    content = guard.apply(target, cloudpickle.dumps)
    kind = type(target)
    known = (specials(kind), (kind.__module__, kind.__qualname__))
    return restore_later, (content, guard.policy, package, known)


class _Module:
    """A module by its name, which plain pickling does not know."""

    def __init__(self, name: str) -> None:
        self.name = name


def restore(content: bytes, policy: Any, package: Package) -> Any:
    """Return the proxy that another process had, bound to this process's guard."""
    guard = guard_for(policy)
    value = cloudpickle.loads(content)
    if isinstance(value, tuple) and not guard.shares:
        return build(guard.restore(*value), guard, package)  # type: ignore[attr-defined]
    if isinstance(value, _Module):
        value = importlib.import_module(value.name)
    return build(guard.target(value), guard, package)


def restore_later(content: bytes, policy: Any, package: Package, known: Any) -> Any:
    """Return the proxy that another process had, whose object is unpickled when it is used.

    Unpickling runs the library's code, so it has to wait for the policy; and a worker unpickles
    on its event loop, which must not wait.
    """
    guard = guard_for(policy)
    proxy = build(Unloaded(content, known), guard, package)
    _set_parts(proxy, (_parts(proxy)[0], Loading(guard, proxy), package))
    return proxy


class Loading(Guard):
    """Stands in for the guard of a proxy until the first operation on it.

    Notes
    -----
    Thread-safe: the proxy is changed under the policy, or for one that lets several threads in,
    under a lock of its own.
    """

    shares = False

    def __init__(self, guard: Guard, proxy: Proxy) -> None:
        super().__init__(guard.policy)
        self._guard = guard
        self._proxy = weakref.ref(proxy)
        self._lock = forks.lock()

    def apply(self, target: Any, operation: proxy_operations.Operation, *args: Any) -> Any:
        """Load the object through the real guard, and carry out an operation on it."""
        proxy = self._proxy()
        if proxy is None:
            raise ReferenceError("a proxy was used while it was deleted")
        self._guard.apply(proxy, self._load)
        return self._guard.apply(_parts(proxy)[0], operation, *args)

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], package: Package
    ) -> Any:
        """Load the object through the real guard, and call it."""
        return self.apply(target, proxy_operations.call, args, kwargs)

    def _load(self, proxy: Proxy) -> None:
        with self._lock:
            target, _, package = _parts(proxy)
            if isinstance(target, Unloaded):
                _set_parts(proxy, (cloudpickle.loads(target.content), self._guard, package))
