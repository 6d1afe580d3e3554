"""What shuffles and LZ4 make of a few parts of a buffer, and in what time."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusched.serialization.codec import blocks, blosc

_PART = 48 << 10
"""Bytes of one part; a multiple of every common item size."""
_PARTS = 3
_TRIES = 2
"""The first finds cold caches, and any may wait for its turn on a busy machine."""


@dataclass(frozen=True)
class Sample:
    """What one shuffle makes of parts of a buffer."""

    shuffle: str
    ratio: float
    """Bytes before a byte after."""
    encoding: float
    """Seconds to compress a byte, with one thread."""
    decoding: float
    """Seconds to decompress a byte, with one thread."""

    @property
    def coding(self) -> float:
        """Seconds to compress and decompress a byte, with one thread."""
        return self.encoding + self.decoding


def shuffles(itemsize: int) -> list[str]:
    """Return the shuffles that may suit items of that size."""
    return ["byte", "bit"] if itemsize > 1 else ["none", "bit"]


def parts(data: Any, itemsize: int) -> list[np.ndarray]:
    """Return a few parts of a buffer, each of whole items.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8; NumPy's or CuPy's.
    itemsize
        Bytes of what is in it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.codec import sampling
    >>> [part.nbytes for part in sampling.parts(np.zeros(1_000_000, "u1"), 8)]
    [49152, 49152, 49152]
    """
    places = [data]
    if data.nbytes > _PARTS * _PART:
        last = data.nbytes - _PART
        # At the beginning, in the middle and at the end, each at the beginning of an item.
        starts = [last * part // (_PARTS - 1) // itemsize * itemsize for part in range(_PARTS)]
        places = [data[start : start + _PART] for start in starts]
    return [part if isinstance(part, np.ndarray) else part.get() for part in places]


def first(parts: Sequence[np.ndarray], itemsize: int, shuffle: str, tries: int = _TRIES) -> Sample:
    """Return what a shuffle makes of the first part."""
    found = [_take(parts[0], itemsize, shuffle) for _ in range(tries)]
    return min(found, key=lambda sample: sample.coding)


def whole(begun: Sample, parts: Sequence[np.ndarray], itemsize: int) -> Sample:
    """Return what a shuffle makes of all parts, by what it makes of the first."""
    found = [begun, *(_take(part, itemsize, begun.shuffle) for part in parts[1:])]
    fastest = min(found, key=lambda sample: sample.coding)
    return replace(fastest, ratio=len(found) / sum(1 / sample.ratio for sample in found))


@functools.lru_cache(64)
def least(itemsize: int, shuffle: str) -> Sample:
    """Return what a shuffle makes of zeros, of which nothing takes less time."""
    return first([np.zeros(_PART, np.uint8)], itemsize, shuffle, tries=5)


def _take(part: np.ndarray, itemsize: int, shuffle: str) -> Sample:
    coded, *seconds = _timed(part, itemsize, shuffle)
    # A block is long, and what a call takes whatever it is given is nothing beside it.
    net = [max(all_in - call, all_in / 8) for all_in, call in zip(seconds, _calls(), strict=True)]
    return Sample(shuffle, part.nbytes / len(coded), *(each / part.nbytes for each in net))


@functools.cache
def _calls() -> tuple[float, float]:
    """Return the seconds that calls take to compress and to decompress next to nothing."""
    found = [_timed(np.zeros(64, np.uint8), 1, "none") for _ in range(9)]
    return min(each[1] for each in found), min(each[2] for each in found)


def _timed(part: np.ndarray, itemsize: int, shuffle: str) -> tuple[bytes, float, float]:
    started = time.perf_counter()
    coded = blosc.compress(part, itemsize, shuffle)
    encoded = time.perf_counter()
    blocks.decode([coded], part.nbytes, part.nbytes)
    return coded, encoded - started, time.perf_counter() - encoded
