"""What groups of calls are given: how a plan depends on it, and why kernels may not take it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from gpusched.backends.devices import HOST, Device, device_of, strides_are_whole
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.dtypes import exact, is_compared_whole
from gpusched.emit.operations import replaced
from gpusched.graph.safety.kinds import SCALARS
from gpusched.placed import Placed
from gpusched.plan.plan import Register
from gpusched.record.recorded import Sealed

_PLAIN = frozenset((bool, int, str, bytes, type(None), type(Ellipsis)))
NESTED = frozenset((tuple, list))
"""What inputs may be instead of arrays: several of them."""
Shapes = list[tuple[int, ...]]
SMALL = GraphBreak.SMALL_CHUNKS("small chunks")
ONCE = GraphBreak.SMALL_CHUNKS("small chunks, and what is recorded of one holds for no other")
PAYS_ONCE = 1 << 8
"""Times as many elements as in other chunks from which on calls are recorded for one chunk alone:
with the defaults, 1M. A recording takes 0.5 to 3 ms. In the milliseconds of processor time of plain
dask, sums of what a mask chooses in a function of the user's took 4.2 where chunks had 50K
elements, 2.5 of 200K, 1.3 of 1M and 1.1 of 4M; those of a chain of functions such as `exp`, 2.8 of
50K, 1.3 of 200K, 0.7 of 1M and 0.6 of 4M (AMD EPYC)."""


def flat(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs with the items of tuples and lists in their places.

    Examples
    --------
    >>> from gpusched.graph.running.inputs import flat
    >>> flat((1, (2, [3]), 4))
    (1, 2, 3, 4)
    """
    if NESTED.isdisjoint(map(type, inputs)):
        return inputs
    return tuple(
        item
        for value in inputs
        for item in (flat(tuple(value)) if type(value) in NESTED else (value,))
    )


def describe(value: Any) -> Any:
    """Return what of an input a plan may depend on; `TypeError` if that is not known.

    The same is equal for equal arguments of a call, in which a register is known by its number.
    No function of the user's is recorded with other values: these could have any attributes.
    """
    if type(value) is np.ndarray:
        return value.dtype, value.shape, value.strides
    if type(value) is float:
        return float, exact(value)
    if type(value) in _PLAIN:
        return type(value), value
    if isinstance(value, np.dtype) and is_compared_whole(value):
        return np.dtype, value
    if isinstance(value, type) and (issubclass(value, np.generic) or value in (bool, int, float)):
        return type, value
    if type(value) in SCALARS:
        # Bytes do not show the unit of a date.
        return type(value), value.dtype, value.tobytes()
    if type(value) is slice:
        return slice, describe(value.start), describe(value.stop), describe(value.step)
    if type(value) in NESTED:
        return type(value), tuple([describe(item) for item in value])
    if type(value) is dict and not any(map(_is_array, flat(tuple(value.values())))):
        return dict, tuple([(describe(key), describe(item)) for key, item in value.items()])
    if type(value) is Register:
        return Register, value.number, value.item
    if type(value) is Sealed:
        return Sealed
    if type(value) is Placed:
        return Placed, value.dtype, value.shape, _whole_strides(value.array)
    if hasattr(value, "__array_ufunc__") and hasattr(value, "strides"):
        return type(value), value.dtype, value.shape, _whole_strides(value)
    raise TypeError(f"an argument of type {type(value).__name__}")


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, which is no input where it is in a dictionary."""
    return hasattr(value, "__array_ufunc__") and not isinstance(value, np.generic)


def _whole_strides(array: Any) -> tuple[int, ...]:
    """Return the strides of an array on a device, 0 along axes of one element.

    No kernel takes a step along those, and CuPy does not order the axes of a result by them.
    Pieces of chunks that are cut, copied or turned differ in nothing else.
    """
    strides: tuple[int, ...] = array.strides
    if 1 not in array.shape:
        return strides
    return tuple([s if n > 1 else 0 for n, s in zip(array.shape, strides, strict=True)])


def first_device(inputs: tuple[Any, ...]) -> Device:
    """Return the device of the chunks among some inputs; the host if there are none."""
    return next((device for device in map(device_of, flat(inputs)) if device is not None), HOST)


def obscurity(value: Any) -> str:
    """Return what an input is on which no plan can depend, for people; empty for any other.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.running.inputs import obscurity
    >>> obscurity({"n": np.ones(3)}), obscurity([object()]), obscurity(np.ones(3))
    ('a dictionary of arrays', 'an object of type object', '')
    """
    try:
        describe(value)
    except TypeError:
        items = (*value, *value.values()) if type(value) is dict else value
        if type(value) is dict and any(map(_is_array, flat(items))):
            return "a dictionary of arrays"
        if type(value) in (dict, *NESTED):
            return next(filter(None, map(obscurity, items)))
        return f"an object of type {type(value).__name__}"
    return ""


def obstacle(
    inputs: tuple[Any, ...],
    obscure: Reason | None,
    most: Callable[[Shapes], int],
    least: int,
    once: bool = False,
) -> Reason | None:
    """Return why calls are not recorded for some inputs, or None if they may be.

    Parameters
    ----------
    inputs
        Of the calls.
    obscure
        Why no plan can depend on them, if so.
    most
        Takes the shapes of the arrays among them; says how many elements the largest array has at
        most that the calls may make.
    least
        Elements of an array that is large enough.
    once
        Whether what is recorded holds for one chunk.
    """
    values = flat(inputs)
    reason = unsuitable(values)
    if reason is not None:
        return reason
    arrays = [(value.shape, device.name) for value in values if (device := device_of(value))]
    if obscure is not None:
        return obscure
    if len({device for _, device in arrays}) > 1:
        return GraphBreak.DEVICES("chunks on several devices")
    if not arrays:
        return GraphBreak.NO_ARRAY("no array among the inputs")
    return small(most([shape for shape, _ in arrays]), least, once)


def small(elements: int, least: int, once: bool) -> Reason | None:
    """Return why calls on so many elements are not recorded, or None if they may be.

    Parameters
    ----------
    elements
        Of the largest array.
    least, once
        As in `obstacle`.

    Examples
    --------
    >>> from gpusched.graph.running.inputs import small
    >>> small(10_000, 4096, once=False) is None
    True
    >>> small(10_000, 4096, once=True)
    'small chunks, and what is recorded of one holds for no other'
    """
    if elements < least:
        return SMALL
    return ONCE if once and elements < least * PAYS_ONCE else None


def most_elements(shapes: Shapes, joins: bool, realigns: bool) -> int:
    """Return how many elements the largest array has, about, that calls make of some arrays.

    Parameters
    ----------
    shapes
        Of the arrays.
    joins
        Whether the calls join arrays.
    realigns
        Whether they may put axes where others have none, along which what has none is repeated.

    Examples
    --------
    >>> from gpusched.graph.running.inputs import most_elements
    >>> shapes = [(1000, 1, 4), (500, 4)]
    >>> most_elements(shapes, joins=False, realigns=False)
    2000000
    >>> most_elements([(1000,)], joins=False, realigns=True)
    1000000
    """
    sizes = sorted(map(math.prod, shapes))
    if realigns:
        return max(sum(sizes), sizes[-1] * (sizes[-2] if len(sizes) > 1 else sizes[-1]))
    if joins:
        return sum(sizes)
    axes = zip_longest(*map(reversed, shapes), fillvalue=1)
    return math.prod(map(max, axes))


def unsuitable(values: tuple[Any, ...]) -> Reason | None:
    """Return why no kernel takes some inputs, made `flat`; None if they are taken, or no chunks."""
    missing = replaced()
    if missing:
        reason = f"numpy.{missing} is not NumPy's, so that no kernel can be compiled"
        # Results are right, so that only a measurement would show that nothing is fused.
        warnings.warn(f"{reason}: nothing is fused", RuntimeWarning, stacklevel=2)
        return GraphBreak.REPLACED(reason)
    for value in values:
        kernels_take = isinstance(value, np.generic) or device_of(value) is not None
        if kernels_take or not hasattr(value, "__array_ufunc__"):
            continue
        if type(value) is np.ndarray and not strides_are_whole(value):
            return GraphBreak.STRIDES("chunks whose strides are no whole number of elements")
        if type(value) is np.ndarray or type(value).__module__ == "cupy":
            strings = value.dtype.kind in "US"
            return (GraphBreak.STRINGS if strings else GraphBreak.DTYPE)(f"dtype {value.dtype}")
        return GraphBreak.CHUNK_TYPE(f"chunks of type {type(value).__name__}")
    return None
