"""Arrays on a GPU while a task is gone through: looked at in host memory, computed with there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpusched.debugging.origins import Called
from gpusched.inspection.standins import arrays_in, is_cupy


def host(value: Any) -> Any:
    """Return a chunk in host memory, as are those in lists, tuples and dictionaries.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.debugging.host_copies import host
    >>> host({"total": np.float64(3)})
    {'total': np.float64(3.0)}
    """
    return _replaced(value, lambda array: array.get() if is_cupy(array) else array)


def every_array(value: Any) -> list[Any]:
    """Return the arrays and NumPy scalars in a value, in host memory or on a GPU.

    In the order of `gpusched.inspection.standins.arrays_in`, which knows those in host memory only.
    """
    if is_cupy(value):
        return [value]
    if isinstance(value, list | tuple):
        return [array for item in value for array in every_array(item)]
    if isinstance(value, dict):
        return [array for item in value.values() for array in every_array(item)]
    return arrays_in(value)


def fetched(value: Any) -> tuple[Any, bool]:
    """Return a chunk in host memory, and whether it was on a GPU: what a worker sends of it."""
    return host(value), any(map(is_cupy, every_array(value)))


class Placement:
    """Which arrays in host memory are copies of arrays on a GPU.

    Elements are looked at in the copies. A function is given arrays on the GPU again, since it may
    be one of CuPy's; without a GPU in this process it is given the copies.

    Notes
    -----
    Belongs to one thread. Keeps every array that it knows, so that identities last.
    """

    def __init__(self) -> None:
        self._there: dict[int, Any] = {}
        self._copies: dict[int, tuple[Any, Any]] = {}

    def mark(self, value: Any) -> None:
        """Note that the arrays of a value in host memory are copies of arrays on a GPU."""
        self._there |= {id(array): array for array in arrays_in(value)}

    def marked(self, value: Any) -> bool:
        """Return whether any array of a value in host memory is such a copy."""
        return any(id(array) in self._there for array in arrays_in(value))

    def bring(self, value: Any) -> Any:
        """Return a value in host memory; of one array always the same copy."""
        return _replaced(value, self._copy)

    def sent(self, called: Called) -> Called:
        """Return a call with its arguments where the function finds them in a real run."""
        if not self.marked([*called.args, *called.kwargs.values()]) or not _has_gpu():
            return called
        names = dict(called.names)

        def send(array: Any) -> Any:
            if id(array) not in self._there:
                return array
            import cupy

            there = cupy.asarray(array)
            names[id(there)] = names.get(id(array), "")
            return there

        args, kwargs = _replaced(called.args, send), _replaced(called.kwargs, send)
        return replace(called, args=args, kwargs=kwargs, names=names)

    def _copy(self, array: Any) -> Any:
        if not is_cupy(array):
            return array
        if id(array) not in self._copies:
            copy = array.get()
            self._copies[id(array)] = array, copy
            self.mark(copy)
        return self._copies[id(array)][1]


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure with each of its arrays changed; itself where none is."""
    if isinstance(value, np.ndarray) or is_cupy(value):
        return change(value)
    if type(value) in (list, tuple):
        changed = [_replaced(item, change) for item in value]
        same = all(a is b for a, b in zip(changed, value, strict=True))
        return value if same else type(value)(changed)
    if type(value) is dict:
        return {name: _replaced(item, change) for name, item in value.items()}
    return value


def _has_gpu() -> bool:
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.is_available())
