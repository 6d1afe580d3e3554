"""Blocks of a buffer, each shuffled and compressed for itself, several at once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusched.serialization.codec import blosc
from gpusched.serialization.codec.blosc import Header
from gpusched.serialization.frames import CorruptFrameError

BLOCK = 4 << 20
"""Bytes of a block before it is compressed. A multiple of every common item size."""

_LARGEST_BLOCK = 1 << 30
_BEST_RATIO = 256
"""LZ4 encodes at most 255 bytes in one, whatever they are."""
_MOST_THREADS = 8
_AT_ONCE = 2
"""Blocks per thread that are expanded before their compressed form is let go."""


def encode(data: np.ndarray, itemsize: int, shuffle: str) -> list[bytes]:
    """Return the compressed blocks of a buffer.

    Parameters
    ----------
    data
        Shape ``(n,)``, dtype uint8.
    itemsize
        Bytes of what is in it: bytes at the same place in each item go together.
    shuffle
        ``byte``, ``bit`` or ``none``.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.codec import blocks
    >>> numbers = np.arange(1_000_000)
    >>> coded = blocks.encode(numbers.view("u1"), 8, "byte")
    >>> len(coded), sum(map(len, coded)) < 100_000
    (2, True)
    >>> bool((blocks.decode(coded, numbers.nbytes, blocks.BLOCK).view(int) == numbers).all())
    True
    """
    return list(each(lambda block: blosc.compress(block, itemsize, shuffle), split(data)))


@dataclass(frozen=True)
class Pending:
    """A block that is compressed when it is written, so that memory holds few that are."""

    data: np.ndarray
    """Shape ``(n,)``, dtype uint8."""
    itemsize: int
    """Bytes."""
    shuffle: str

    def encode(self) -> bytes:
        """Return it compressed."""
        return blosc.compress(self.data, self.itemsize, self.shuffle)


def pending(data: np.ndarray, itemsize: int, shuffle: str) -> list[Pending]:
    """Return what `encode` does, undone."""
    return [Pending(block, itemsize, shuffle) for block in split(data)]


def completed(frames: Iterable[Any]) -> Iterator[Any]:
    """Yield frames, with pending ones compressed, as many ahead as there are threads.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.codec import blocks
    >>> frames = [b"as it is", *blocks.pending(np.zeros(9_000_000, "u1"), 1, "none")]
    >>> [len(frame) < 50_000 for frame in blocks.completed(frames)]
    [True, True, True, True]
    """
    waiting: list[Any] = []
    for frame in frames:
        coded = isinstance(frame, Pending)
        waiting.append(_pool(os.getpid()).submit(frame.encode) if coded else frame)
        if len(waiting) > threads():
            yield _result(waiting.pop(0))
    while waiting:
        yield _result(waiting.pop(0))


def _result(frame: Any) -> Any:
    return frame.result() if isinstance(frame, Future) else frame


def split(data: Any, block: int | None = None) -> list[Any]:
    """Return views on the blocks of a buffer, by default of `BLOCK` bytes."""
    step = block or BLOCK
    return [data[start : start + step] for start in range(0, data.nbytes, step)]


def decode(frames: Sequence[Any], nbytes: int, block: int, release: bool = False) -> np.ndarray:
    """Return the buffer whose blocks these are.

    Everything is checked before memory is taken, so that no frames can ask for more than 256 times
    their own length. Raises `CorruptFrameError` if they are not blocks of such a buffer.

    Parameters
    ----------
    frames
        From any source.
    nbytes
        Of the buffer.
    block
        Bytes of a block before it was compressed; the last has what remains.
    release
        Whether frames are taken out of their list as they are expanded, so that memory never holds
        all of the buffer in both forms.

    Returns
    -------
    numpy.ndarray
        Shape ``(nbytes,)``, dtype uint8.
    """
    check(frames, nbytes, block)
    data = np.empty(nbytes, np.uint8)
    views = split(data, block)
    taken = frames if release and isinstance(frames, list) else list(frames)
    taken.reverse()
    while taken:
        step = [(taken.pop(), views.pop(0)) for _ in range(min(len(taken), _AT_ONCE * threads()))]
        for _ in each(lambda pair: blosc.decompress(*pair), step):
            pass
    return data


def check(frames: Sequence[Any], nbytes: int, block: int) -> None:
    """Refuse frames whose lengths are not those of blocks of such a buffer; see `decode`.

    Raises `CorruptFrameError` if they are not.
    """
    numbers = (nbytes, block)
    if not all(type(number) is int for number in numbers) or not 0 < block <= _LARGEST_BLOCK:
        raise CorruptFrameError(f"lengths of a buffer and its blocks: found {numbers}")
    total = sum(memoryview(frame).nbytes for frame in frames)
    if len(frames) != -(-nbytes // block) or not 0 <= nbytes <= total * _BEST_RATIO:
        raise CorruptFrameError(
            f"compressed blocks: {len(frames)} of {total} bytes cannot hold {nbytes} bytes in "
            f"blocks of {block}"
        )
    for number, frame in enumerate(frames):
        expected = min(block, nbytes - number * block), memoryview(frame).nbytes
        header = Header.of(frame)
        found = header.nbytes, header.coded
        if found != expected:
            # c-blosc itself reads and writes as far as the block says.
            raise CorruptFrameError(
                f"lengths of block {number}, before and after compression: "
                f"expected {expected}, found {found}"
            )


def each(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    """Return what a function makes of each item, of several at once; all is begun at once."""
    if len(items) < 2 or threads() < 2:
        return map(function, items)
    return _pool(os.getpid()).map(function, items)


def parallel(nbytes: int) -> int:
    """Return how many threads work on the blocks of a buffer."""
    return max(1, min(threads(), nbytes // BLOCK))


@functools.cache
def threads() -> int:
    """Return how many threads compress at once."""
    return min(len(os.sched_getaffinity(0)), _MOST_THREADS)


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    # By process, since threads do not live on in one that was forked.
    return ThreadPoolExecutor(threads(), thread_name_prefix="gpusched-codec")
