"""Whether functions are safe for lazy chunks, whatever they are called with."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.breaks import Reason
from gpusched.graph.functions.partials import applied, bare
from gpusched.graph.running.traced import of_the_users
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.graph.safety.outside import Outside
from gpusched.plan.expression import UnrecordableError
from gpusched.plan.plan import ReplayError
from gpusched.record.chunk import recorder_of
from tests.record.recording import Recording, assert_same, record


def why_unsafe(function: Any) -> Reason | None:
    """Return why `function` is not shown to be safe for lazy chunks, or None if it is.

    Every argument without a default may be a chunk.

    Examples
    --------
    >>> import numpy as np
    >>> from tests.graph.examining import why_unsafe
    >>> why_unsafe(lambda x: np.exp(x[1:] - x[:-1]).sum(axis=0)) is None
    True
    >>> def first_is_zero(x):
    ...     x[0] = 0
    ...     return x
    >>> why_unsafe(first_is_zero)
    'assigns to elements of an array (store_subscr, line 2)'
    """
    inner = bare(function)
    if not isinstance(inner, types.FunctionType):
        return examined(function, (), {}).reason
    return examined(function, *arguments_of(function, inner)).reason


def recorded(function: Callable[..., Any], outside: Outside, *arrays: np.ndarray) -> Recording:
    """Return what comes of recording a function as a segment does it.

    Raises
    ------
    UnrecordableError
        If it is to run on the arrays themselves.
    """

    def call(*chunks: Any) -> Any:
        recorder = recorder_of(chunks[0])
        recorder.answers = {}
        return of_the_users(recorder, outside.bound(recorder).value(function), *chunks)

    return record(call, *arrays, backend="python")


def assert_safe(function: Any, *arrays: np.ndarray) -> None:
    """Assert that `function` of chunks is shown to be safe, and gives what it gives NumPy."""
    given = arrays or (np.arange(12.0).reshape(3, 4),)
    found = examined(function, [Kind.OTHER] * len(given), {})
    assert found.reason is None
    recording = recorded(function, found.outside, *given)
    assert_same(recording.result, function(*given))
    again = [each + 1 for each in given]
    assert_same(recording.run(*again), function(*again))


def assert_numpys(function: Any, stops: str = "") -> None:
    """Assert that `function` of one chunk is shown to be safe, and what NumPy does when recorded.

    Parameters
    ----------
    function
        The function.
    stops
        What its recording ends with, if that is a reason.
    """
    found = examined(function, [Kind.OTHER], {})
    assert found.reason is None
    x = np.arange(12.0).reshape(3, 4)
    try:
        recording = recorded(function, found.outside, x)
    except UnrecordableError as error:
        told = str(error)  # It runs on the arrays themselves.
    else:
        told = ""
        assert_same(recording.result, function(x.copy()))
        assert_same(recording.run(x + 1), function(x + 1))
    assert bool(stops) == bool(told)
    assert stops in told
    np.testing.assert_array_equal(x, np.arange(12.0).reshape(3, 4))


def assert_as_numpy(function: Any) -> None:
    """Assert that `function` is refused, stops, raises what it raises anyway, or gives NumPy's.

    Whatever it is, it leaves the array that it is given as it is if it is not refused.
    """
    found = examined(function, [Kind.OTHER], {})
    if found.reason is not None:
        return
    x = np.arange(6.0).reshape(2, 3)
    given = x.copy()
    try:
        expected, error = function(given), None
    except Exception as raised:  # noqa: BLE001  which is compared
        expected, error = None, raised
    np.testing.assert_array_equal(given, x)
    try:
        recording = recorded(function, found.outside, x.copy())
    except (UnrecordableError, Exception):  # noqa: BLE001
        return  # It runs on the arrays themselves, and raises there what it raises.
    assert error is None
    assert_same(recording.result, expected)
    try:
        again = recording.run(x + 1)
    except ReplayError:
        return
    assert_same(again, function(x + 1))


def arguments_of(function: Any, inner: types.FunctionType) -> tuple[list[Any], dict[str, Any]]:
    """Return kinds of arguments that a call of a function has at least."""
    code = inner.__code__
    _, args, bound = applied(function, (), {})
    given = len(args)
    required = code.co_argcount - len(inner.__defaults__ or ())
    chunks = [Kind.OTHER for name in code.co_varnames[given:required] if name not in bound]
    end = code.co_argcount + code.co_kwonlyargcount
    only = code.co_varnames[code.co_argcount : end]
    defaults = inner.__kwdefaults__ or {}
    return chunks, {n: Kind.OTHER for n in only if n not in defaults and n not in bound}
