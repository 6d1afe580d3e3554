"""`wrap`, and what all of this module's folder has in one process.

Here both ends meet: policies know nothing of their guards, and proxies nothing of how they are
restored in another process.
"""

from __future__ import annotations

import atexit
import inspect
import os
from typing import Any

from gpusched.threadsafe import (
    counts,
    dedicated,
    guards,
    pickling,
    policies,
    proxy,
    registry,
    waits,
)
from gpusched.threadsafe.child_processes import ProcessGuard
from gpusched.threadsafe.handle_classes import Package
from gpusched.threadsafe.instances import PerDeviceGuard, PerThreadGuard
from gpusched.threadsafe.limits import LimitGuard
from gpusched.threadsafe.locks import LockGuard
from gpusched.threadsafe.policies import Policy

registry.MAKERS.update(
    {
        policies.Lock: LockGuard,
        policies.OneThread: dedicated.OneThreadGuard,
        policies.Limit: LimitGuard,
        policies.PerThread: PerThreadGuard,
        policies.PerDevice: PerDeviceGuard,
        policies.Process: ProcessGuard,
    }
)
proxy.Proxy.__reduce_ex__ = pickling.reduce  # type: ignore[assignment, method-assign]


def wrap(value: Any, policy: Policy | str, *, results: bool = True) -> Any:
    """Return what behaves like an object, module, class or function, called as a policy says.

    Parameters
    ----------
    value : object
        What is not thread-safe. The original must not be used beside the proxy.
    policy : Policy or str
        A policy, or its text as in settings, such as ``"lock(hdf5)"``. Without a name it gets that
        of the package that ``value`` comes from.
    results : bool
        Whether what calls return is wrapped, too, where it belongs to the same package, is an
        iterator or a context manager. Arrays, numbers, text and the like never are.

    Returns
    -------
    proxy
        It can be pickled where ``value`` can, and takes the lock, thread or process of the process
        that it gets to.

    Raises
    ------
    TypeError
        If ``value`` is a coroutine function: an event loop must not wait. If ``policy`` is neither
        a policy nor text.
    ValueError
        If ``policy`` is none.

    Examples
    --------
    >>> import collections
    >>> from gpusched import threadsafe
    >>> counter = threadsafe.wrap(collections.Counter("abracadabra"), "lock(letters)")
    >>> counter["a"], isinstance(counter, dict), len(counter)
    (5, True, 5)
    >>> counter.update("aaa")
    >>> counter.most_common(1)
    [('a', 8)]
    """
    policy = policies.parse(policy) if isinstance(policy, str) else policy
    if not isinstance(policy, Policy):
        raise TypeError(
            f"{policy!r} is not a policy: give one such as threadsafe.lock('name'), or its text"
        )
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise TypeError(f"{value!r} is asynchronous: an event loop must not wait for a policy")
    package = Package.of(value, results)
    if proxy.is_proxy(value):
        value = proxy.unwrap(value)
    guard = registry.guard_for(policy.named(package.name or type(value).__name__))
    return proxy.build(guard.target(value), guard, package)


def unwrap(value: Any) -> Any:
    """Return what a proxy stands for, for code that takes the policy into its own hands.

    Parameters
    ----------
    value : object
        A proxy; anything else is returned as it is.

    Examples
    --------
    >>> import json
    >>> from gpusched import threadsafe
    >>> threadsafe.unwrap(threadsafe.wrap(json, "lock")) is json
    True
    """
    return proxy.unwrap(value)


def close() -> None:
    """End all threads and child processes of policies; the next calls start them again.

    Called at the process's end.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> threadsafe.close()
    """
    for guard in registry.every():
        guard.close()
    dedicated.join()


def _in_forked_child() -> None:
    waits.forget_others()
    registry.forget_others()


def _counts() -> list[tuple[str, counts.Counts]]:
    found = {id(guard.counts): (str(guard), guard.counts) for guard in registry.every()}
    # Their guards come and go; counters only grow.
    found |= {id(counts): (str(policy), counts) for policy, counts in list(guards.of_each.items())}
    return list(found.values())


counts._sources.append(_counts)
atexit.register(close)
os.register_at_fork(after_in_child=_in_forked_child)
