"""Bytes in GPU memory that belong to any library's array.

The interface: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusched.serialization.arrays.layout import Layout


class Region:
    """A stretch of GPU memory, as an array of bytes that any library can wrap.

    Parameters
    ----------
    owner
        The array that the memory belongs to, which lives as long as this does.
    pointer
        Of the first byte.
    nbytes
        How many.
    stream
        As the interface reports it: the stream that writes there, or None if all is written.

    Examples
    --------
    >>> from gpusched.serialization.arrays.cuda_array_interface import Region
    >>> Region(None, 4096, 8).__cuda_array_interface__["shape"]
    (8,)
    """

    def __init__(self, owner: Any, pointer: int, nbytes: int, stream: int | None = None) -> None:
        self.owner = owner
        self.nbytes = nbytes
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "strides": None,
            "data": (pointer, False),
            "stream": stream,
            "version": 3,
        }


def span(array: Any, itemsize: int) -> tuple[Layout, Region]:
    """Return the memory that an array reaches, gaps included, and where its elements are there.

    Parameters
    ----------
    array
        Has ``__cuda_array_interface__``.
    itemsize
        Bytes of an element.
    """
    interface = array.__cuda_array_interface__
    shape, pointer = tuple(interface["shape"]), interface["data"][0]
    told = interface.get("strides")
    strides = dense_strides(shape, itemsize) if told is None else tuple(told)
    low, high = _reach(shape, strides, itemsize)
    region = Region(array, pointer + low, high - low, interface.get("stream"))
    return Layout(shape, strides, -low), region


def dense_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides, in bytes, of an array in C's order.

    Examples
    --------
    >>> from gpusched.serialization.arrays.cuda_array_interface import dense_strides
    >>> dense_strides((2, 3), 8)
    (24, 8)
    """
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def has_gaps(layout: Layout, itemsize: int) -> bool:
    """Return whether an array reaches more bytes than its elements take.

    Examples
    --------
    >>> from gpusched.serialization.arrays.cuda_array_interface import has_gaps
    >>> from gpusched.serialization.arrays.layout import Layout
    >>> has_gaps(Layout((2, 1000), (8, 0), 0), 8), has_gaps(Layout((2, 3), (64, 8), 0), 8)
    (False, True)
    """
    low, high = _reach(layout.shape, layout.strides, itemsize)
    taken = itemsize if high > low else 0
    for n, stride in zip(layout.shape, layout.strides, strict=True):
        taken *= n if stride else 1
    return high - low > taken


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    if 0 in shape:
        return 0, 0
    reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + itemsize
