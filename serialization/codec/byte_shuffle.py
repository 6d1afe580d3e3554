"""c-blosc's byte shuffle, as copies of transposed views: of NumPy's arrays, and of CuPy's on a GPU.

Each inner block is a matrix with an item in each row, which becomes one with an item in each
column. Of the last inner block, bytes after the last whole item stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shape = tuple[int, int]


def shuffle(part: Any, itemsize: int, inner: int) -> Any:
    """Return bytes in the order of their places in the items.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.codec.byte_shuffle import shuffle, unshuffle
    >>> plain = np.array([10, 11, 20, 21, 30, 31, 40], np.uint8)
    >>> shuffle(plain, 2, 4).tolist()
    [10, 20, 11, 21, 30, 31, 40]
    >>> unshuffle(shuffle(plain, 2, 4), 2, 4).tolist()
    [10, 11, 20, 21, 30, 31, 40]
    """
    return _turned(part, itemsize, inner, lambda items: (items, itemsize))


def unshuffle(part: Any, itemsize: int, inner: int) -> Any:
    """Return the bytes whose `shuffle` this is."""
    return _turned(part, itemsize, inner, lambda items: (itemsize, items))


def _turned(part: Any, itemsize: int, inner: int, matrix: Callable[[int], Shape]) -> Any:
    turned = part.copy()
    whole = part.size // inner * inner
    for start, end in ((0, whole), (whole, part.size)):
        length = min(inner, end - start)
        items = length // itemsize if length else 0
        if not items:
            continue
        source, target = (
            data[start:end].reshape(-1, length)[:, : items * itemsize] for data in (part, turned)
        )
        rows = source.reshape(-1, *matrix(items))
        target[...] = rows.transpose(0, 2, 1).reshape(target.shape)
    return turned
