"""How results are laid out in memory: as NumPy's are, where functions may see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.emit.kernel import LAST_NUMBER
from gpusched.graph.running.inputs import flat
from gpusched.plan.expression import Apply, Leaf, Reduce, Scalar, Scan
from gpusched.plan.layout import falls
from gpusched.plan.plan import Call, Launch, Plan, substitute
from gpusched.record.chunk import chunks_in, was_own
from gpusched.record.record import Recorder

if TYPE_CHECKING:
    from gpusched.graph.running.traced import Trace


def planned(plan: Plan, trace: Trace, inputs: tuple[Any, ...]) -> Any:
    """Return how a plan lays results out that functions may see; None if NumPy does the same.

    Parameters
    ----------
    plan
        The plan.
    trace
        What it was made of.
    inputs
        Of the segment.
    """
    recorder = trace.recorder
    given, results = flat(inputs), flat(substitute(plan.result, recorder.contents))
    arrays = list(filter(is_array, results))
    own = all(was_own(chunk) or not chunk.shape for chunk in chunks_in(trace.results))
    ordered = own and _keeps_c_order(recorder) and all(map(in_c_order, given))
    if not arrays or (ordered and all(map(_is_plain, arrays))):
        return None
    return seen(results, inputs, recorder.moved)


def seen(results: Any, inputs: tuple[Any, ...], moved: bool = False) -> Any:
    """Return what functions see of how results are laid out.

    Parameters
    ----------
    results, inputs
        Of a segment.
    moved
        Whether a GPU computes them: on the host, each function gets a copy of its own then.
    """
    found = flat(results)
    return strides(found) if moved else layouts(found, flat(inputs))


def _keeps_c_order(recorder: Recorder) -> bool:
    """Return whether what kernels compute is in C order in NumPy if all arrays given are.

    That holds of elementwise functions, reductions and NumPy's scans of arrays in that order;
    what else is called on arrays, as views are, has shown in which order its result is. numbagg
    fills gaps of an array in another order.
    """
    called = (step for step in recorder.steps if isinstance(step, Call))
    made = [recorder.contents[k] for step in called for k in step.results]
    kinds = Leaf, Scalar, Apply, Reduce, Scan, Launch, Call
    ordered = all(a is not None and falls(a.shape, a.strides) for a in made)
    return ordered and all(
        type(each) in kinds and getattr(each, "combine", None) != LAST_NUMBER
        for each in (*recorder.nodes(), *recorder.steps)
    )


def layouts(values: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """Return what can be seen of how arrays are laid out in memory, and whose memory they share.

    Whether an array owns its memory is left out: large results are lent theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.running.layouts import layouts
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
    """Return whether a value is an array, NumPy's or CuPy's.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.running.layouts import is_array
    >>> is_array(np.ones(3)), is_array(np.float32(3)), is_array(np.float32)
    (True, False, False)
    """
    return hasattr(value, "strides") and not isinstance(value, np.generic | type)


def in_c_order(value: Any) -> bool:
    """Return whether the axes of a value go from the slowest to the fastest, if it is an array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.running.layouts import in_c_order
    >>> x = np.ones((4, 6))
    >>> in_c_order(x[1:, ::2]), in_c_order(x.T), in_c_order(x[::-1])
    (True, False, False)
    """
    return not is_array(value) or falls(value.shape, value.strides)


def _is_plain(value: Any) -> bool:
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
