"""Whether functions are safe for lazy chunks, whatever they are called with."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from gpusched.breaks import Reason
from gpusched.graph.functions.partials import applied, bare
from gpusched.graph.safety.examination import examined
from gpusched.graph.safety.kinds import Kind
from gpusched.plan.expression import UnrecordableError
from tests.record.recording import assert_same, record


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


def assert_safe(function: Any) -> None:
    """Assert that `function` of one chunk is shown to be safe, and gives what it gives NumPy."""
    assert why_unsafe(function) is None
    x = np.arange(12.0).reshape(3, 4)
    found = record(function, x, backend="python")
    assert_same(found.result, function(x))
    assert_same(found.run(x + 1), function(x + 1))


def assert_numpys(function: Any) -> None:
    """Assert that `function` of one chunk is shown to be safe, and NumPy's if it is recorded."""
    assert why_unsafe(function) is None
    x = np.arange(12.0).reshape(3, 4)
    try:
        found = record(function, x, backend="python")
    except UnrecordableError:
        return  # It runs on the arrays themselves.
    np.testing.assert_array_equal(x, np.arange(12.0).reshape(3, 4))
    assert_same(found.result, function(x.copy()))
    assert_same(found.run(x + 1), function(x + 1))


def arguments_of(function: Any, inner: types.FunctionType) -> tuple[list[Any], dict[str, Any]]:
    """Return kinds of arguments that a call of a function has at least."""
    code = inner.__code__
    _, args, bound = applied(function, (), {})
    given = len(args)
    required = code.co_argcount - len(inner.__defaults__ or ())
    chunks = [Kind.ARRAY for name in code.co_varnames[given:required] if name not in bound]
    end = code.co_argcount + code.co_kwonlyargcount
    only = code.co_varnames[code.co_argcount : end]
    defaults = inner.__kwdefaults__ or {}
    return chunks, {n: Kind.ARRAY for n in only if n not in defaults and n not in bound}
