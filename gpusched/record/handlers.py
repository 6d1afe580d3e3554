"""What records NumPy's functions and methods: a handler for each, and how handlers are called.

A handler's parameters are the ones that it honours: a call with any other is handed over to NumPy,
as it is where the handler raises `UnfusibleError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import learn
from gpusched.record.record import Recorder

HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What records a NumPy function, or a ufunc that goes through whole axes: called with the recorder,
then the call's own arguments."""

METHODS: dict[str, Callable[..., Any]] = {}
"""What records a method of an array: called with the recorder, the lazy chunk, the arguments."""

UFUNC_METHODS: dict[str, Callable[..., Any]] = {}
"""What records a method of a ufunc: called with the lazy chunk, the ufunc, then the arguments."""

SPECIAL: dict[str, Callable[..., Any]] = {}
"""What records a special method of lazy chunks, which no program calls by its name: called with the
recorder, the lazy chunk, the arguments."""

DISPATCHED = type(np.sum)
"""Type of NumPy's functions that lazy chunks are asked for (NEP 18), and of no others."""

Handler = TypeVar("Handler", bound=Callable[..., Any])


def records(
    *functions: Callable[..., Any], method: str = "", traits: tuple[str, ...] = ("recorded", "pure")
) -> Callable[[Handler], Handler]:
    """Return a decorator of what records NumPy's functions, and a method of arrays as they do.

    The parameters of what it decorates are those that are honoured, behind the recorder. With other
    ones the functions are called, if they are pure (`gpusched.record.catalogue.TRAITS`).
    """

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(functions, handler))
        learn(functions, *traits)
        if method:
            METHODS[method] = handler
        return handler

    return register


def records_method(*names: str) -> Callable[[Handler], Handler]:
    """Return a decorator of what records methods of arrays alone."""

    def register(handler: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, handler))
        return handler

    return register


def records_special(name: str) -> Callable[[Handler], Handler]:
    """Return a decorator of what records a special method of lazy chunks."""

    def register(handler: Handler) -> Handler:
        SPECIAL[name] = handler
        return handler

    return register


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Give a recorder for one call, and let it know of an error even if the program catches it."""
    recorder.check_thread()
    if recorder.closed:
        recorder.count()
    calls = recorder.followed
    if calls is not None:
        calls.begin()
    if not recorder.depth:
        recorder.lent = []
    recorder.depth += 1
    try:
        yield recorder
    except Exception as error:
        recorder.failed(error)
        raise
    finally:
        recorder.depth -= 1
        if calls is not None:
            calls.end()


def noted(
    recorder: Recorder,
    found: Any,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any = None,
) -> Any:
    """Return what a call on arrays has given; whoever follows the calls of a function notes it.

    A function of the user's gets no chunk back that it has given: lists that it compares take an
    item for equal to itself, whatever it holds, and NumPy may have returned another array.
    """
    if recorder.followed is not None:
        recorder.followed.note(found, function, args, kwargs or {})
    if not recorder.closed:
        return found
    if _is_new(found):
        # NumPy's functions in Python compute what they make arrays of as their handlers do.
        recorder.asks(*(found if type(found) in (list, tuple) else (found,)), *args)
        if recorder.depth == 1:
            # What the call has shared with views of its own, it has let go of.
            for chunk in recorder.lent:
                chunk._fresh = True
    if type(found) in (list, tuple):
        return type(found)(_another(recorder, each, args) for each in found)
    return _another(recorder, found, args)


def _is_new(found: Any) -> bool:
    """Return whether what a call gives shares memory with nothing."""
    if type(found) in (list, tuple):
        return all(map(_is_new, found))
    return getattr(found, "_fresh", False) or getattr(found, "_scalar", False)


def _another(recorder: Recorder, found: Any, args: Any) -> Any:
    if not any(found is each for each in args) or not hasattr(found, "again"):
        return found
    other = found.again()
    if recorder.followed is not None:
        recorder.followed.called_again(other, found)
    return other


@lru_cache(maxsize=512)
def signature_of(handler: Callable[..., Any]) -> inspect.Signature:
    """Return what a handler takes: exactly the arguments and options that it honours."""
    return inspect.signature(handler)


@lru_cache(maxsize=512)
def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of one of NumPy's functions, with what each is if it is not given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # compiled, without a signature
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def is_default(function: Callable[..., Any], name: str, value: Any) -> bool:
    """Return whether an option of a call of NumPy's is what it would be if it were not given.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.handlers import is_default
    >>> is_default(np.sum, "out", None), is_default(np.sum, "out", 0), is_default(np.sum, "axis", 0)
    (True, False, False)
    """
    found = _defaults(function).get(name, inspect.Parameter.empty)
    return value is found or (type(value) is type(found) is str and value == found)


def unusual(function: Callable[..., Any], handler: Callable[..., Any],
            kwargs: dict[str, Any]) -> dict[str, Any]:  # fmt: skip
    """Return options of a call without those that ask for nothing and that its handler lacks."""
    known = signature_of(handler).parameters
    return {n: v for n, v in kwargs.items() if n in known or not is_default(function, n, v)}


def honoured(handler: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a handler; `UnfusibleError` for an argument that it does not know.

    Parameters
    ----------
    handler
        Of a function or a method.
    first
        The recorder, or the lazy chunk of a method of a ufunc.
    """
    try:
        signature_of(handler).bind(first, *args, **kwargs)
    except TypeError as error:
        raise UnfusibleError(
            GraphBreak.OPTION, f"arguments that no kernel honours: {error}"
        ) from error
    return handler(first, *args, **kwargs)


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer, of Python's or NumPy's, and no truth value.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.handlers import is_integer
    >>> is_integer(3), is_integer(np.int8(3)), is_integer(True), is_integer(3.0)
    (True, True, False, False)
    """
    return type(value) is int or isinstance(value, np.integer)


def axis_of(axis: Any, ndim: int) -> int:
    """Return which axis one is, counted from the first; `UnfusibleError` for what is no integer."""
    if not is_integer(axis):
        raise UnfusibleError(GraphBreak.OPTION, f"axis {axis!r}")
    return normalize_axis_index(int(axis), ndim)
