"""Replaces a library's functions and classes by guarded ones, in place."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gpusched import forks
from gpusched.threadsafe.guards import Guard
from gpusched.threadsafe.handle_classes import Package, top_level
from gpusched.threadsafe.policies import Policy, parse
from gpusched.threadsafe.registry import guard_for
from gpusched.threadsafe.unsafe_libraries import Case
from gpusched.threadsafe.wrapping import wrap

Replaced = tuple[Any, str, Any]
"""The owner, the name, and what was there."""

_DATA = Package("", results=False)


def replace(case: Case, module: types.ModuleType) -> tuple[list[Replaced], list[str]]:
    """Replace a library's targets in one of its modules.

    Returns
    -------
    replaced, missing
        What was replaced, to be put back; and the targets that the module does not have.
    """
    policy = parse(case.policy).named(case.library)
    replaced: list[Replaced] = []
    missing: list[str] = []
    for target in case.targets:
        where, _, path = target.partition(":")
        if where != module.__name__:
            continue
        found = list(_owners(module, path))
        if not found:
            missing.append(target)
        for owner, name in found:
            before = vars(owner).get(name)
            original = getattr(owner, name) if before is None else before
            try:
                setattr(owner, name, _guarded(case, policy, owner, original))
            except TypeError:
                # An asynchronous function, or one of a C type: the import shall not fail for it.
                missing.append(f"{where}:{name}" if path == "*" else target)
            else:
                replaced.append((owner, name, before))
    return replaced, missing


def put_back(replaced: list[Replaced]) -> None:
    """Undo `replace`."""
    for owner, name, original in reversed(replaced):
        if original is None:
            # It was inherited.
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def _owners(module: types.ModuleType, path: str) -> Iterator[tuple[Any, str]]:
    """Yield where a target is, and its name there."""
    if path == "*":
        yield from ((module, name) for name in _public(module))
        return
    *way, name = path.split(".")
    owner: Any = module
    for part in way:
        owner = getattr(owner, part, None)
    if name == "*":
        yield from ((owner, each) for each in _methods(owner))
    elif owner is not None and hasattr(owner, name):
        yield owner, name


def _public(module: types.ModuleType) -> Iterator[str]:
    package = top_level(module.__name__)
    for name in getattr(module, "__all__", None) or sorted(vars(module)):
        value = vars(module).get(name)
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        is_ours = top_level(getattr(value, "__module__", "")) == package
        if is_ours and callable(value) and not is_error and not name.startswith("_"):
            yield name


def _methods(owner: Any) -> Iterator[str]:
    """Yield the names of the public methods that a class defines itself."""
    found = vars(owner) if isinstance(owner, type) else {}
    yield from [n for n, v in found.items() if inspect.isfunction(v) and not n.startswith("_")]


def _guarded(case: Case, policy: Policy, owner: Any, original: Any) -> Any:
    if inspect.iscoroutinefunction(original) or isinstance(original, (classmethod, staticmethod)):
        raise TypeError(f"{original!r} cannot be called under a policy")
    if case.results:
        return wrap(original, policy)
    if isinstance(original, type):
        return original
    if isinstance(owner, type) and getattr(policy, "each", False):
        return _each(original, policy)
    return function(original, policy, case.only_while)


def function(original: Callable[..., Any], policy: Policy, only_while: str = "") -> Any:
    """Return a function, as functions are, that is called under a policy.

    Examples
    --------
    >>> from gpusched import threadsafe
    >>> from gpusched.threadsafe.replacing import function
    >>> def double(x):
    ...     return 2 * x
    >>> function(double, threadsafe.lock("doubling")).__name__
    'double'
    """
    guard = guard_for(policy)
    target = guard.target(original)

    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        return guard.call(target, args, kwargs, _DATA)

    @functools.wraps(original)
    def guarded_at_times(*args: Any, **kwargs: Any) -> Any:
        if getattr(args[0], only_while):
            return guard.call(target, args, kwargs, _DATA)
        return original(*args, **kwargs)

    return guarded_at_times if only_while else guarded


class _Guards:
    """A guard for each object, as long as there is the object.

    Notes
    -----
    Thread-safe. Objects are distinguished by identity, for those of a library may be equal.
    """

    def __init__(self) -> None:
        self._found: dict[int, Guard] = {}
        self._making = forks.lock()

    def get(self, instance: Any, policy: Policy) -> Guard:
        return self._found.get(id(instance)) or self._make(instance, policy)

    def _make(self, instance: Any, policy: Policy) -> Guard:
        with self._making:
            guard = self._found.get(id(instance))
            if guard is None:
                guard = self._found[id(instance)] = guard_for(policy)
                # Before the identity can be another object's.
                weakref.finalize(instance, self._found.pop, id(instance), None).atexit = False
            return guard


_guards = _Guards()


def _each(original: Callable[..., Any], policy: Policy) -> Any:
    @functools.wraps(original)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard = _guards.get(self, policy)
        return guard.call(original, (self, *args), kwargs, _DATA)

    return guarded


def join(case: Case) -> Any:
    """Have a policy's lock take a library's own one, too; return its guard, if it can."""
    where, _, name = case.joins.partition(":")
    lock = getattr(sys.modules.get(where), name, None)
    guard: Any = guard_for(parse(case.policy).named(case.library))
    if lock is None or not hasattr(guard, "joined"):
        return None
    guard.joined = lock
    return guard
