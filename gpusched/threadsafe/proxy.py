"""Proxies: what looks like the wrapped object, and does everything through its policy's guard."""

from __future__ import annotations

import copy
import logging
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from gpusched.newest import Newest
from gpusched.threadsafe import proxy_operations
from gpusched.threadsafe.guards import Guard, Made, is_maker
from gpusched.threadsafe.handle_classes import PLAIN, Package
from gpusched.threadsafe.proxy_targets import Instances, Target, Unloaded
from gpusched.threadsafe.specials import specials
from gpusched.threadsafe.threads import current

logger = logging.getLogger(__name__)

_METHODS = (types.FunctionType, types.MethodDescriptorType, types.BuiltinFunctionType,
            staticmethod, classmethod, types.ClassMethodDescriptorType)  # fmt: skip
"""What a method is in its class: to look it up calls nothing of the library."""


class Proxy:
    """Behaves like the object it stands for, but for the threads its calls run in.

    Attributes are looked up and set, methods and special methods are called, and generators are
    stepped through the guard. Arguments that are proxies are replaced by what they stand for, and
    results that belong to the library are wrapped in their turn.

    Notes
    -----
    Thread-safe, as far as the policy says. `isinstance` sees the wrapped object's class, except
    that of Python functions, which pickling would take apart; ``type`` sees the proxy's.
    """

    # A method's proxy keeps the object's: that is cleared after the method (CPython does so in the
    # order of names), so the object is let go of as everywhere, and never by a method alone.
    __slots__ = ("__weakref__", "_gpusched", "_gpusched_keeper")

    def __getattribute__(self, name: str) -> Any:
        target, guard, package = _parts(self)
        methods = _methods.get(type(target))
        if methods is None:
            methods = _methods_of(type(target))
        if name in methods and guard.shares:
            # To look it up calls nothing of the library.
            value = getattr(target, name)
            if type(value) is _MethodType:
                method = _new(_METHOD)
                _set_parts(method, (value, guard, package))
                _set_keeper(method, self)
                return method
            return _finish(self, value, attribute=True)
        if name in _OWN:
            return object.__getattribute__(self, name)
        if name == "__class__":
            return _class_of(self, target)
        if name == "__wrapped__":
            return unwrap(self)
        if name.startswith("__dask_") and not hasattr(_class_of(self, target), name):
            # dask asks everything whether it is a collection, also on event loops.
            raise AttributeError(f"{type(target).__name__!r} object has no attribute {name!r}")
        if not guard.shares:
            return _attribute_elsewhere(self, target, name)
        if type(target) is types.ModuleType and name in vars(target):
            return _finish(self, vars(target)[name], attribute=True)
        return _finish(self, guard.apply(target, getattr, name), attribute=True)

    def __setattr__(self, name: str, value: Any) -> None:
        target, guard, _ = _parts(self)
        guard.apply(target, setattr, name, unwrap(value))

    def __delattr__(self, name: str) -> None:
        target, guard, _ = _parts(self)
        guard.apply(target, delattr, name)

    def __sizeof__(self) -> int:
        # Asked for on a worker's event loop, which must not wait.
        return object.__sizeof__(self)

    def __copy__(self) -> Any:
        target, guard, package = _parts(self)
        return build(guard.apply(target, copy.copy), guard, package)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        target, guard, package = _parts(self)
        return build(guard.apply(target, copy.deepcopy, memo), guard, package)


class _Callable(Proxy):
    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        target, guard, package = _parts(self)
        for argument in args:
            if type(argument) not in PLAIN:
                args = tuple(map(_unwrap_deep, args))
                break
        if kwargs:
            kwargs = {key: _unwrap_deep(value) for key, value in kwargs.items()}
        value = guard.call(target, args, kwargs, package)
        return value if type(value) in PLAIN else _finish(self, value)


_OWN = frozenset(("__reduce_ex__", "__reduce__", "__copy__", "__deepcopy__",
                  "__mro_entries__", *Proxy.__slots__))  # fmt: skip
_parts: Callable[[Proxy], tuple[Any, Guard, Package]] = cast(Any, Proxy)._gpusched.__get__
"""Gives a proxy's target, guard and package, without asking the object that it stands for."""
_set_parts = cast(Any, Proxy)._gpusched.__set__
_set_keeper = cast(Any, Proxy)._gpusched_keeper.__set__
_new: Callable[[type[Proxy]], Any] = cast(Any, object.__new__)
_MethodType = types.MethodType


def build(target: Any, guard: Guard, package: Package) -> Any:
    """Return a proxy for a target."""
    names = target.specials() if isinstance(target, Target) else specials(type(target))
    return _with_parts(_class_with(names), target, guard, package)


def _handle(value: Any, guard: Guard, package: Package) -> Any:
    """Return a proxy for a result, which is deleted under the policy as it is used under it."""
    return _with_parts(_class_with(specials(type(value)), _let_go), value, guard, package)


def _let_go(self: Proxy) -> None:
    guard = _parts(self)[1]
    # No variable here may refer to the object itself, or it would be deleted at this function's
    # end; the list is emptied by whoever deletes it.
    only = [_parts(self)[0]]
    _set_parts(self, ())
    guard.unreferenced.append(only)
    guard.delete()


def _with_parts(kind: type[Proxy], target: Any, guard: Guard, package: Package) -> Any:
    proxy = object.__new__(kind)
    _set_parts(proxy, (target, guard, package))
    return proxy


def is_proxy(value: Any) -> bool:
    """Return whether a value is a proxy."""
    return issubclass(type(value), Proxy)


def unwrap(value: Any) -> Any:
    """Return what a proxy stands for in this thread, or any other value as it is."""
    if not issubclass(type(value), Proxy):
        return value
    target, guard, _ = _parts(value)
    if isinstance(target, Unloaded):
        guard.apply(target, proxy_operations.as_it_is)
        target = _parts(value)[0]
    return (
        target.here()
        if isinstance(target, Instances)
        else value
        if isinstance(target, Target)
        else target
    )


def target_of(proxy: Any) -> Any:
    """Return what a proxy holds of the object it stands for."""
    return _parts(proxy)[0]


def _unwrap_deep(value: Any) -> Any:
    """Replace proxies, also in a plain list, tuple or dictionary, which is copied only then."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in (list, tuple):
        return kind(map(unwrap, value)) if any(map(is_proxy, value)) else value
    if kind is dict:
        return (
            {k: unwrap(v) for k, v in value.items()}
            if any(map(is_proxy, value.values()))
            else value
        )
    return unwrap(value)


@lru_cache(maxsize=4096)
def _class_with(
    names: frozenset[str], at_end: Callable[[Proxy], None] | None = None
) -> type[Proxy]:
    base = _Callable if "__call__" in names else Proxy
    body: dict[str, Any] = {"__slots__": ()}
    if at_end is not None:
        body["__del__"] = at_end
    for name in names - {"__call__"}:
        body[name] = _OTHERS.get(name) or _special(name)
    if "__hash__" not in names:
        body["__hash__"] = None
    return type("Proxy", (base,), body)


def _special(name: str) -> Callable[..., Any]:
    def method(self: Proxy, /, *args: Any, **kwargs: Any) -> Any:
        target, guard, _ = _parts(self)
        for argument in args:
            if type(argument) not in PLAIN:
                args = tuple(map(_unwrap_deep, args))
                break
        invoke = _Keywords(kwargs) if kwargs else proxy_operations.invoke
        value = guard.apply(target, invoke, name, *args)
        return value if type(value) in PLAIN else _finish(self, value)

    method.__name__ = name
    return method


class _Keywords:
    """`invoke` with keyword arguments, for child processes, too."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        self._kwargs = kwargs

    def __call__(self, value: Any, name: str, *args: Any) -> Any:
        return proxy_operations.invoke(value, name, *args, **self._kwargs)


def _bind(self: Proxy, instance: Any, owner: type | None = None) -> Any:
    """Make a wrapped function a method where it is one of a class."""
    return self if instance is None else types.MethodType(cast(Any, self), instance)


def _mro_entries(self: Proxy, bases: tuple[Any, ...]) -> tuple[type, ...]:
    """Let classes derive from a wrapped class; they are not wrapped themselves, which is logged."""
    base, frame = unwrap(self), sys._getframe(1)
    logger.warning(
        "%s:%d: a class derives from %s, but its instances are not called under %s; wrap the class "
        "itself, as with threadsafe.wrap(Name, %r)",
        frame.f_code.co_filename, frame.f_lineno, base.__name__, _parts(self)[1],
        str(_parts(self)[1]),
    )  # fmt: skip
    return (base,)


def _text(name: str) -> Callable[[Proxy], str]:
    def method(self: Proxy) -> str:
        target, guard, _ = _parts(self)
        if current().answers_loop:
            # For a log, which is no reason to wait.
            return f"<{_class_of(self, target).__name__} under {guard}>"
        text: str = guard.apply(target, proxy_operations.invoke, name)
        return text

    method.__name__ = name
    return method


_OTHERS: dict[str, Callable[..., Any]] = {
    "__get__": _bind,
    "__mro_entries__": _mro_entries,
    "__repr__": _text("__repr__"),
    "__str__": _text("__str__"),
}


def _class_of(self: Proxy, target: Any) -> type:
    kind = target.kind() if isinstance(target, Target) else type(target)
    # cloudpickle takes apart whatever says that it is a Python function.
    return type(self) if kind in (None, types.FunctionType) else kind


_methods: Newest[type, frozenset[str]] = Newest(4096)
"""What `_methods_of` has found."""


def _methods_of(kind: type) -> frozenset[str]:
    """Return the names of a type's methods, which are looked up as methods are."""
    found: dict[str, Any] = {}
    if cast(Any, kind).__getattribute__ is object.__getattribute__:
        for base in reversed(kind.__mro__):
            found |= vars(base)
    names = {name for name, value in found.items() if isinstance(value, _METHODS)}
    methods = _methods[kind] = frozenset(names - _OWN)
    return methods


def _finish(self: Proxy, value: Any, attribute: bool = False) -> Any:
    """Return a result as the caller is to have it."""
    target, guard, package = _parts(self)
    if isinstance(value, Target):
        return build(value, guard, package)
    made = type(value) is Made
    if made:
        value, guard = value.value, value.guard
    if value is target:
        return self
    if not guard.shares or value is NotImplemented:
        return value
    kind = type(value)
    if attribute and kind in _BOUND and getattr(value, "__self__", None) is target:
        return build(value, guard, package)
    if kind in PLAIN or not (package.results or attribute) or not package.is_handle(value):
        return value
    if not attribute and not made and is_maker(target):
        guard = guard.of_handle()
    if kind is tuple:
        return tuple(_handle(v, guard, package) if package.is_handle(v) else v for v in value)
    return _handle(value, guard, package)


_METHOD = _class_with(specials(types.MethodType))
_BOUND = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def _attribute_elsewhere(self: Proxy, target: Any, name: str) -> Any:
    """Return an attribute of what another thread, device or process has another one of."""
    _, guard, package = _parts(self)
    if isinstance(target, Unloaded):
        guard.apply(target, proxy_operations.as_it_is)
        return getattr(self, name)
    value = guard.apply(target, getattr, name)
    if isinstance(value, Target):
        return build(value, guard, package)
    if not isinstance(target, Target):
        return build(value, guard, package) if package.is_handle(value) else value
    return Method(self, name) if type(value) in _BOUND else value


class Method:  # noqa: D101
    # A method, looked up anew in the thread, on the device or in the process where it is called.
    # Says this in no docstring, for __doc__ is the method's own.

    __slots__ = ("__self__", "_name")

    def __init__(self, proxy: Proxy, name: str) -> None:
        self.__self__ = proxy
        self._name = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method of that name through the guard of its proxy."""
        args = tuple(map(_unwrap_deep, args))
        kwargs = {key: _unwrap_deep(value) for key, value in kwargs.items()}
        target, guard, _ = _parts(self.__self__)
        value = guard.apply(target, proxy_operations.call_method, self._name, args, kwargs)
        return _finish(self.__self__, value)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        text: str | None = self.__getattr__("__doc__")
        return text

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self.__self__.__class__, self._name), name)

    def __repr__(self) -> str:
        return f"<method {self._name} of {self.__self__!r}>"
