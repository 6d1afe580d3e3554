"""Whether to compress a buffer, and how: decided from a sample of it and the link it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched.serialization.codec import blocks, blosc
from gpusched.serialization.codec.link import Link, Transfer

_SMALLEST = 64 << 10
"""Bytes of a buffer; what a shorter one saves is less than what looking at it costs."""
_SAMPLE = 48 << 10
"""Bytes of one part of the sample; a multiple of every common item size."""
_PARTS = 3
_GAIN = 0.9
"""Share of the time without compression that it must promise to stay below."""
_LEAST_RATIO = 1.05
_WARM = 1.25
"""How much longer a byte takes than one of a sample, which stays in the processor's caches."""


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


def choose(data: Any, itemsize: int, link: Link | Transfer | None) -> Sample | None:
    """Return the sample that shows how to compress a buffer, or None to leave it as it is.

    It is compressed if that is expected to take less time, all in all: with ``n`` bytes, ratio
    ``r``, ``c`` seconds a byte to compress and decompress on ``p`` threads, and a link of ``w``
    bytes a second, if ``n c / p + n / (r w)`` is well below ``n / w``. Between two processes of
    one machine ``p`` is 1, since sender and receiver need its other cores to pass the bytes.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8; NumPy's or CuPy's.
    itemsize
        Bytes of what is in it.
    link
        None compresses whatever gets smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.codec.choice import choose
    >>> from gpusched.serialization.codec.link import Link
    >>> slow, noise = Link(1e8), np.random.default_rng(0).bytes(1 << 20)
    >>> choose(np.arange(1 << 20).view("u1"), 8, slow) is None
    False
    >>> choose(np.frombuffer(noise, "u1"), 1, slow) is None
    True
    """
    if data.nbytes < _SMALLEST:
        return None
    best = min(samples(data, itemsize), key=lambda sample: _cost(sample, data.nbytes, link))
    if best.ratio < _LEAST_RATIO:
        return None
    if link is not None and _cost(best, data.nbytes, link) > _GAIN / link.bandwidth:
        return None
    return best


def samples(data: Any, itemsize: int) -> list[Sample]:
    """Return what each shuffle makes of a few parts of a buffer."""
    parts = _parts(data, itemsize)
    shuffles = ["byte", "bit"] if itemsize > 1 else ["none", "bit"]
    return [_sample(parts, itemsize, shuffle) for shuffle in shuffles]


def _parts(data: Any, itemsize: int) -> list[np.ndarray]:
    return [
        part if isinstance(part, np.ndarray) else part.get() for part in _places(data, itemsize)
    ]


def _places(data: Any, itemsize: int) -> list[Any]:
    if data.nbytes <= _PARTS * _SAMPLE:
        return [data]
    last = data.nbytes - _SAMPLE
    # At the beginning, in the middle and at the end, each at the beginning of an item.
    starts = [last * part // (_PARTS - 1) // itemsize * itemsize for part in range(_PARTS)]
    return [data[start : start + _SAMPLE] for start in starts]


def _sample(parts: list[np.ndarray], itemsize: int, shuffle: str) -> Sample:
    times, before, after = [], 0, 0
    for part in parts:
        started = time.perf_counter()
        coded = blosc.compress(part, itemsize, shuffle)
        encoded = time.perf_counter()
        blocks.decode([coded], part.nbytes, part.nbytes)
        decoded = time.perf_counter()
        times.append(((encoded - started) / part.nbytes, (decoded - encoded) / part.nbytes))
        before, after = before + part.nbytes, after + len(coded)
    # The first part finds cold caches, and any may wait for its turn on a busy machine.
    return Sample(shuffle, before / after, *map(min, zip(*times, strict=True)))


def _cost(sample: Sample, nbytes: int, link: Link | Transfer | None) -> float:
    """Return the seconds that a byte takes, from being compressed to being decompressed."""
    if link is None:
        return 1 / sample.ratio
    threads = 1 if link.shares_cores else blocks.parallel(nbytes)
    coding = _WARM * (sample.encoding + sample.decoding) / threads
    return coding + 1 / (sample.ratio * link.bandwidth)
