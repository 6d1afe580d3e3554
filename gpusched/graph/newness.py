"""What is new about chunks that no plan was known for: why a task was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

FIRST = "first of its kind"
CHANGED = "what a function reads from outside has changed"
UNCOMPARABLE = "an argument that cannot be compared"
OTHER_RESULT = "a function returned another kind of result than before"
COMPILED = "its kernels have been compiled since"
NOT_KEPT = "the plan before was for one chunk only"

Inputs = tuple[Any, ...]
"""What a plan depends on, for each input of a segment, see `gpusched.graph.segment.describe`."""

_FACTS = ("dtype", "shape", "strides")


def newness(inputs: Inputs, known: Iterable[Inputs]) -> str:
    """Return which inputs differ from those that there is a plan for, where the fewest differ.

    Parameters
    ----------
    inputs
        Those that there is no plan for.
    known
        Those that there are plans for.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.newness import newness
    >>> whole = np.dtype(float), (10, 4), (32, 8)
    >>> newness((whole,), [])
    'first of its kind'
    >>> newness(((np.dtype(float), (7, 4), (32, 8)),), [(whole,)])
    'another shape of input 0'
    """
    found = [list(_differences(inputs, each)) for each in known if len(each) == len(inputs)]
    if not found:
        return FIRST
    fewest = min(found, key=len)
    return ", ".join(fewest)


def _differences(inputs: Inputs, known: Inputs) -> Iterator[str]:
    for number, (new, old) in enumerate(zip(inputs, known, strict=True)):
        if new == old:
            continue
        facts = zip(_FACTS, _array(new), _array(old), strict=False)
        what = next((fact for fact, one, other in facts if one != other), "value")
        yield f"{'other' if what == 'strides' else 'another'} {what} of input {number}"


def _array(described: Any) -> tuple[Any, ...]:
    """Return an array's dtype, shape and strides; nothing if it is none."""
    last = described[-3:]
    return last if isinstance(last[0], np.dtype) and len(last) == 3 else ()
