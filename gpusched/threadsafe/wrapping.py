"""`wrap`, and the one guard of each policy in this process."""

from __future__ import annotations

import atexit
import inspect
import os
import threading
from typing import Any

from gpusched.threadsafe import counts, guards, kinds, proxy, waits
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Home
from gpusched.threadsafe.kinds import Policy

_named: dict[Policy, Guard] = {}
_making = threading.Lock()


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
    policy = kinds.parse(policy) if isinstance(policy, str) else policy
    if not isinstance(policy, Policy):
        raise TypeError(
            f"{policy!r} is not a policy: give one such as threadsafe.lock('name'), or its text"
        )
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise TypeError(f"{value!r} is asynchronous: an event loop must not wait for a policy")
    home = Home.of(value, results)
    if proxy.is_proxy(value):
        value = proxy.unwrap(value)
    guard = guard_for(policy.named(home.name or type(value).__name__))
    return proxy.build(guard.cell(value), guard, home)


def guard_for(policy: Policy) -> Guard:
    """Return this process's guard of a policy: always the same, but for one with ``each``."""
    found = _named.get(policy)
    if found is not None:
        return found
    with _making:
        if policy not in _named:
            new = guards.register(_kind(policy)(policy))
            if getattr(policy, "each", False):
                return new
            _named[policy] = new
        return _named[policy]


def _kind(policy: Policy) -> type[Any]:
    from gpusched.threadsafe.children import ProcessGuard
    from gpusched.threadsafe.dedicated import OneThreadGuard
    from gpusched.threadsafe.instances import PerDeviceGuard, PerThreadGuard
    from gpusched.threadsafe.limits import LimitGuard
    from gpusched.threadsafe.locks import LockGuard

    found: dict[type[Policy], type[Any]] = {
        kinds.Lock: LockGuard,
        kinds.OneThread: OneThreadGuard,
        kinds.Limit: LimitGuard,
        kinds.PerThread: PerThreadGuard,
        kinds.PerDevice: PerDeviceGuard,
        kinds.Process: ProcessGuard,
    }
    return found[type(policy)]


def named() -> list[Guard]:
    """Return this process's guards but for those of single handles, which nobody can hold."""
    return list(_named.values())


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
    from gpusched.threadsafe import dedicated

    for guard in guards.every():
        guard.close()
    dedicated.join()


def _in_forked_child() -> None:
    global _making
    _making = threading.Lock()
    waits.forget_others()
    guards.forget_others()


def _counts() -> list[tuple[str, counts.Counts]]:
    found = {id(guard.counts): (str(guard), guard.counts) for guard in guards.every()}
    # Their guards come and go; counters only grow.
    found |= {id(counts): (str(policy), counts) for policy, counts in list(guards.of_each.items())}
    return list(found.values())


counts._sources.append(_counts)
atexit.register(close)
os.register_at_fork(after_in_child=_in_forked_child)
