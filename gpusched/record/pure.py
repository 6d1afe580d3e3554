"""Calls that are known to leave their arguments as they are.

Only these are made on computed arrays while a program is recorded: a recording that fails later
must be able to start again, on inputs that nothing has changed.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak, Reason
from gpusched.record.catalogue import has, method_has
from gpusched.record.foreign import is_foreign

_CHANGING = {"out": None, "copy": True, "overwrite_input": False}
"""Parameters through which a function changes what it is given, with the value that does not."""


def why_changing(function: Any, args: Any, kwargs: Any) -> Reason | None:
    """Return why a call of NumPy's may change what it is given; None if it does not.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.pure import why_changing
    >>> x = np.ones(3)
    >>> why_changing(np.sum, (x,), {}) is None
    True
    >>> why_changing(np.sum, (x, 0, None, x), {})
    'calls sum with out='
    >>> why_changing(np.put, (x, 0, 1), {})
    'calls put, which may change its arguments'
    """
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, np.ufunc) or is_foreign(function):
        given = len(args) > function.nin or kwargs.get("out") is not None
        return GraphBreak.CHANGES(f"calls {name} with out=") if given else None
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and name in ("reduce", "accumulate", "outer", "reduceat"):
        given = kwargs.get("out") is not None or len(args) > 3
        return GraphBreak.CHANGES(f"calls {owner.__name__}.{name} with out=") if given else None
    if not has(function, "pure"):
        return GraphBreak.CHANGES(f"calls {name}, which may change its arguments")
    return _why(name, _signature(function), args, kwargs)


def why_method_changing(name: str, args: Any, kwargs: Any) -> Reason | None:
    """Return why a method of an array's may change it or its arguments; None if it does not.

    Parameters
    ----------
    name
        Of the method.
    args, kwargs
        What it is given besides the array.
    """
    if not method_has(name, "pure"):
        return GraphBreak.CHANGES(f"calls the method {name}, which may change the array")
    if kwargs.get("out") is not None:
        return GraphBreak.CHANGES(f"calls {name} with out=")
    signature = _signature(getattr(np, name, None))
    if signature is None or "out" not in signature.parameters:
        return None  # nor has the method
    return _why(name, signature, (None, *args), kwargs)


def _why(name: str, signature: inspect.Signature | None, args: Any, kwargs: Any) -> Reason | None:
    if signature is None:
        return GraphBreak.CHANGES(f"calls {name}, whose parameters are not known")
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return GraphBreak.CHANGES(f"calls {name}: {error}")  # NumPy says so on real arrays
    for parameter, harmless in _CHANGING.items():
        value = given.get(parameter, given.get("kwargs", {}).get(parameter, harmless))
        if value is not harmless:
            return GraphBreak.CHANGES(f"calls {name} with {parameter}=")
    return None


@lru_cache(maxsize=512)
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # not a function, or compiled without a signature
        return None
