"""c-blosc's format of a compressed block, as far as it is used beside c-blosc's own functions.

The first 16 bytes of a block: version, LZ4's version, flags, item size, then three little-endian
u32: bytes before compression, bytes of the inner blocks that are shuffled one by one, bytes after
(https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst).
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

import numcodecs.blosc
import numpy as np

from gpusched.serialization.frames import CorruptFrameError

SHUFFLES = {"none": 0, "byte": 1, "bit": 2}
"""c-blosc's numbers."""

_HEADER = struct.Struct("<2x2B3I")
_FLAGS = 2
"""Where the flags are."""
_SHUFFLED = 1
_STORED = 2
"""Not compressed, and not shuffled either whatever the other flag says."""
_LARGEST_ITEM = 255


@dataclass(frozen=True)
class Header:
    """What a block says of itself."""

    flags: int
    itemsize: int
    nbytes: int
    """Before compression."""
    inner: int
    """Bytes of the inner blocks."""
    coded: int
    """Bytes after compression."""

    @classmethod
    def of(cls, frame: Any) -> Header:
        """Read a block's header.

        Raises `CorruptFrameError` if the block is too short for one.
        """
        if memoryview(frame).nbytes < _HEADER.size:
            raise CorruptFrameError(f"a compressed block of {memoryview(frame).nbytes} bytes")
        return cls(*_HEADER.unpack_from(frame))

    @property
    def is_shuffled(self) -> bool:
        """Whether decompressing moves bytes of items back to each other."""
        return bool(self.flags & _SHUFFLED) and not self.flags & _STORED

    @property
    def is_stored(self) -> bool:
        """Whether it holds the bytes as they were, because LZ4 could not shorten them."""
        return bool(self.flags & _STORED)


def compress(block: np.ndarray, itemsize: int, shuffle: str) -> bytes:
    """Return a block compressed; other threads run meanwhile.

    Parameters
    ----------
    block
        Shape ``(n,)``, dtype uint8.
    itemsize
        Bytes of what is in it.
    shuffle
        ``byte``, ``bit`` or ``none``.
    """
    coded: bytes = numcodecs.blosc.compress(
        block, b"lz4", 1, SHUFFLES[shuffle], typesize=itemsize if itemsize <= _LARGEST_ITEM else 1
    )
    return coded


def decompress(frame: Any, part: np.ndarray) -> None:
    """Write what a block holds, which must have the lengths that its header reports.

    c-blosc reads and writes as far as the header says, so compare that with both before. Raises
    `CorruptFrameError` if it is damaged.
    """
    try:
        numcodecs.blosc.decompress(frame, part)
    except (RuntimeError, ValueError) as error:
        raise CorruptFrameError(f"a compressed block: {error}") from error


@functools.lru_cache(1024)
def inner(nbytes: int, itemsize: int) -> int:
    """Return the bytes of the inner blocks that c-blosc makes of a block of that length.

    Examples
    --------
    >>> from gpusched.serialization.codec import blosc
    >>> blosc.inner(4 << 20, 8) % 8
    0
    """
    return Header.of(compress(np.zeros(nbytes, np.uint8), itemsize, "none")).inner


def can_shuffle(itemsize: int) -> bool:
    """Return whether c-blosc shuffles items of that size."""
    return 1 < itemsize <= _LARGEST_ITEM


def mark_shuffled(coded: bytes) -> bytes:
    """Return a block whose bytes were shuffled before it was compressed without a shuffle."""
    return _with_flags(coded, coded[_FLAGS] | _SHUFFLED)


def mark_plain(frame: Any) -> bytes:
    """Return a block that decompresses to its bytes as they were shuffled."""
    coded = bytes(frame)
    return _with_flags(coded, coded[_FLAGS] & ~_SHUFFLED)


def _with_flags(coded: bytes, flags: int) -> bytes:
    return coded[:_FLAGS] + bytes([flags]) + coded[_FLAGS + 1 :]
