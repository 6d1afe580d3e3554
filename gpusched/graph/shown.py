"""Which functions may see how arrays are laid out in memory, and what of a graph they see.

A function of which nothing is known may ask for the strides of its chunk, or write through
``reshape``, which copies some layouts and not others. What reaches it, through whatever functions,
is to have the layout that NumPy gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpusched.graph import libraries
from gpusched.graph.changing import may_change
from gpusched.graph.partials import callables, parts


def sees(step: Any) -> bool:
    """Return whether a step calls a function, not of a library, that may see such a layout."""
    inner = getattr(step.function, "sees", None)  # of a program
    return bool(inner) or (may_change(step) and any(map(_is_own, _called(step))))


def _called(step: Any) -> list[Any]:
    called = [step.function, *callables((step.args, step.kwargs))]
    return [part for each in called for part in parts(each)]


def _is_own(function: Any) -> bool:
    kind = function if getattr(function, "__module__", None) else type(function)
    return libraries.package(kind) not in libraries.OBJECTS


def shown_registers(steps: Sequence[Any], inputs: int) -> set[int]:
    """Return the registers whose layout such functions may see, of a program or of others."""
    found: set[int] = set()
    for k, step in reversed(list(enumerate(steps))):
        if step.shown:
            found.add(inputs + k)
        if inputs + k in found or sees(step):
            found |= step.registers
    return found


def layouts(values: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """Return what can be seen of how arrays are laid out in memory, and whose memory they share.

    Whether an array owns its memory is left out: large results are lent theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.shown import layouts
    >>> x = np.ones((2, 3))
    >>> layouts([x + 1], [x]) == layouts([np.zeros((2, 3))], [x])
    True
    >>> layouts([x.T], [x]) == layouts([x.T + 1], [x])
    False
    """
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    others = [value for value in (*inputs, *arrays) if isinstance(value, np.ndarray)]
    seen = [
        (a.strides, a.flags.writeable, [np.may_share_memory(a, o) for o in others]) for a in arrays
    ]
    return [type(value) for value in values], seen


def strides(values: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the strides of the arrays among some values, NumPy's or CuPy's."""
    return [value.strides for value in values if is_array(value)]


def is_array(value: Any) -> bool:
    """Return whether a value is an array, NumPy's or CuPy's."""
    return hasattr(value, "strides") and not isinstance(value, np.generic)


def in_c_order(value: Any) -> bool:
    """Return whether the axes of a value go from the slowest to the fastest, if it is an array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.shown import in_c_order
    >>> x = np.ones((4, 6))
    >>> in_c_order(x[1:, ::2]), in_c_order(x.T), in_c_order(x[::-1])
    (True, False, False)
    """
    if not is_array(value):
        return True
    steps = [s for s, n in zip(value.strides, value.shape, strict=True) if n != 1]
    falling = all(first > second for first, second in pairwise(steps))
    return falling and (not steps or steps[-1] > 0)


def is_plain(value: Any) -> bool:
    """Return whether a value is a writeable array that has the strides of a new one in C order.

    Arrays of CuPy's are all writeable.
    """
    if not is_array(value):
        return False
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return False
    expected = value.itemsize
    for length, step in zip(reversed(value.shape), reversed(value.strides), strict=True):
        if step != expected:
            return False
        expected *= length
    return True
