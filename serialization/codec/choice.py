"""Whether to compress a buffer, and how: decided from a sample of it and the link it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpusched.serialization.codec import blocks, sampling
from gpusched.serialization.codec.link import LEAST, Link, Transfer
from gpusched.serialization.codec.sampling import Sample

_SMALLEST = 64 << 10
"""Bytes of a buffer; what a shorter one saves is less than what looking at it costs."""
_OPENING = 2e-4
"""Seconds that opening and closing another process's GPU memory takes."""
_GAIN = 0.9
"""Share of the time without compression that it must promise to stay below."""
_LEAST_RATIO = 1.05
_WARM = 1.25
"""How much longer a byte takes than one of a sample, which stays in the processor's caches."""
_HOPELESS = 1.5
"""Times that share: what the first part of the sample takes if the others need no look."""


def choose(data: Any, itemsize: int, link: Link | Transfer | None) -> Sample | None:
    """Return the sample that shows how to compress a buffer, or None to leave it as it is.

    It is compressed if that is expected to take less time, all in all: with ``n`` bytes, ratio
    ``r``, ``c`` seconds per byte to compress and decompress on ``p`` threads, and a link of ``w``
    bytes per second, if ``n c / p + n / (r w)`` is well below ``n / w``. Between two processes of
    one machine ``p`` is 1, since sender and receiver need its other cores to pass the bytes.

    The faster the link, the less time there is to look: what cannot pay is not looked at to the
    end.

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
    most = math.inf if link is None else _GAIN / link.bandwidth
    cost = _cost(data.nbytes, link)
    parts = sampling.parts(data, itemsize)
    found = []
    for shuffle in sampling.shuffles(itemsize):
        if cost(sampling.least(itemsize, shuffle)) > most:
            continue
        begun = sampling.first(parts, itemsize, shuffle)
        if cost(begun) <= _HOPELESS * most:
            found.append(sampling.whole(begun, parts, itemsize))
    best = min(found, key=cost, default=None)
    return best if best and best.ratio >= _LEAST_RATIO and cost(best) <= most else None


def directly(nbytes: int, transfer: Transfer) -> bool:
    """Return whether the receiver is to copy a buffer of GPU memory to its GPU itself.

    Otherwise it takes the link through the host. Both ways are judged by what they took before.

    Parameters
    ----------
    nbytes
        Of the buffer.
    transfer
        The message.

    Examples
    --------
    >>> from gpusched.serialization.codec.choice import directly
    >>> from gpusched.serialization.codec.link import Link, Peer, Transfer
    >>> link, peer = Link(1e9), Peer()
    >>> directly(1 << 30, Transfer(link, peer)), directly(1 << 10, Transfer(link, peer))
    (True, False)
    >>> for _ in range(3):
    ...     peer.observe(nbytes=1 << 30, seconds=20.0)
    >>> directly(1 << 30, Transfer(link, peer)), directly(1 << 30, Transfer(link))
    (False, False)
    """
    peer = transfer.peer
    if peer is None or nbytes < _SMALLEST:
        return False
    if _OPENING + nbytes / peer.bandwidth < nbytes / transfer.bandwidth:
        return True
    return nbytes >= LEAST and peer.is_due()


def _cost(nbytes: int, link: Link | Transfer | None) -> Callable[[Sample], float]:
    """Return what measures the seconds that a byte takes, from compressing to decompressing it."""
    if link is None:
        return lambda sample: 1 / sample.ratio
    threads = 1 if link.shares_cores else blocks.parallel(nbytes)
    passing = 1 / link.bandwidth
    return lambda sample: _WARM * sample.coding / threads + passing / sample.ratio
