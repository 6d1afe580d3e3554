"""The guards of this process: the one of each policy, and those of single handles."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusched.threadsafe.guards import Guard
    from gpusched.threadsafe.policies import Policy

MAKERS: dict[type[Policy], Callable[[Any], Guard]] = {}
"""What makes the guard of each kind of policies; `gpusched.threadsafe.wrapping` fills it."""

_named: dict[Policy, Guard] = {}
_all: weakref.WeakSet[Guard] = weakref.WeakSet()
_changing = threading.RLock()
"""Held while a guard is made, and while `_all` is changed or read."""


def guard_for(policy: Policy) -> Guard:
    """Return this process's guard of a policy: always the same, but for one with ``each``."""
    found = _named.get(policy)
    if found is not None:
        return found
    with _changing:
        if policy not in _named:
            new = register(MAKERS[type(policy)](policy))
            if getattr(policy, "each", False):
                return new
            _named[policy] = new
        return _named[policy]


def named() -> list[Guard]:
    """Return this process's guards but for those of single handles, which nobody can hold."""
    return list(_named.values())


def register(guard: Guard) -> Guard:
    """Have a guard found by `every`."""
    with _changing:
        _all.add(guard)
    return guard


def every() -> list[Guard]:
    """Return this process's guards."""
    with _changing:
        return list(_all)


def forget_others() -> None:
    """Have every guard start again in a forked process."""
    global _changing
    _changing = threading.RLock()
    for guard in every():
        guard.forget_others()
