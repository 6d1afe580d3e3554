"""A checked container for byte buffers: what a file of spilled results holds.

Layout, all numbers little-endian::

    magic       8 bytes   b"gpusched"
    version     u16       of this layout
    flags       u16       none is defined, so 0
    header      u32       length in bytes
    frames      u32       how many
    total       u64       length of everything, checksum included
    lengths     u64 each  of the frames, in bytes
    header      bytes     the caller's own
    frames      bytes
    checksum    u64       xxh3_64 of the frames, and then of all that stands before them

What stands before the frames is written last, so that frames may be made while they are written,
and so that a file whose writer was stopped begins with zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"gpusched"
VERSION = 2
_FIXED = struct.Struct("<8sHHIIQ")
_CHECKSUM = struct.Struct("<Q")
_LENGTH = 8
_LONGEST_HEADER = 2**32 - 1

# Bytes moved between two updates of the checksum: few enough to be in the processor's cache still.
_STEP = 1 << 20


class Writable(Protocol):
    """A binary file, with or without a buffer."""

    def write(self, data: Any, /) -> int | None:
        """Write at the position; return how many bytes were taken."""

    def seek(self, offset: int, /) -> int:
        """Move the position to an offset from the start."""


class Readable(Protocol):
    """A binary file, with or without a buffer."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill a buffer from the position; return how many bytes were read."""


class CorruptFrameError(ValueError):
    """Bytes are not what was written; the message says which check failed.

    Examples
    --------
    >>> import io
    >>> from gpusched.serialization import frames
    >>> frames.read(io.BytesIO(b"no frames" * 9), 81)
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: magic: expected b'gpusched', found b'no frame'
    """


def write(file: Writable, header: bytes, frames: Iterable[Buffer], count: int | None = None) -> int:
    """Write a header and frames to an open file, without joining or copying the frames.

    Raises `ValueError` if a frame is not contiguous or the header is too long. The file holds
    nothing valid then. Raises `OSError` if the file does not take everything, because the disk is
    full for one.

    Parameters
    ----------
    file
        Open for writing in binary, at its beginning.
    header
        Any bytes, below 4 GiB.
    frames
        Contiguous buffers of any format.
    count
        How many there will be, where `frames` makes them one after the other.

    Returns
    -------
    int
        The bytes written.

    Examples
    --------
    >>> import io
    >>> from gpusched.serialization import frames
    >>> file = io.BytesIO()
    >>> frames.write(file, b"about", [b"first", b"second"])
    68
    """
    if len(header) > _LONGEST_HEADER:
        raise ValueError(
            f"a header of {len(header)} bytes is longer than {_LONGEST_HEADER}: make it a frame"
        )
    if count is None:
        frames = list(frames)
        count = len(frames)
    before_frames = _FIXED.size + _LENGTH * count + len(header)
    _write_all(file, memoryview(bytes(before_frames)))
    digest, lengths = xxhash.xxh3_64(), []
    for number, frame in enumerate(frames):
        view = _flat(number, frame)
        lengths.append(view.nbytes)
        for start in range(0, view.nbytes, _STEP):
            piece = view[start : start + _STEP]
            digest.update(piece)
            _write_all(file, piece)
    total = before_frames + sum(lengths) + _CHECKSUM.size
    fixed = _FIXED.pack(MAGIC, VERSION, 0, len(header), count, total)
    before = fixed + struct.pack(f"<{count}Q", *lengths) + header
    digest.update(before)
    _write_all(file, memoryview(_CHECKSUM.pack(digest.intdigest())))
    file.seek(0)
    _write_all(file, memoryview(before))
    return total


def read(file: Readable, size: int) -> tuple[bytes, list[memoryview]]:
    """Read what `write` wrote.

    Every length is checked against `size` before anything of that length is allocated. Raises
    `CorruptFrameError` if the file is not what was written.

    Parameters
    ----------
    file
        Open for reading in binary, at its beginning.
    size
        Bytes of the file.

    Returns
    -------
    tuple
        The header, and the frames, each in memory of its own that may be written to.

    Examples
    --------
    >>> import io
    >>> from gpusched.serialization import frames
    >>> file = io.BytesIO()
    >>> size = frames.write(file, b"about", [b"first", b"second"])
    >>> _ = file.seek(0)
    >>> header, read = frames.read(file, size)
    >>> header, [bytes(frame) for frame in read]
    (b'about', [b'first', b'second'])
    """
    shortest = _FIXED.size + _CHECKSUM.size
    if size < shortest:
        raise CorruptFrameError(f"size: expected at least {shortest} bytes, found {size}")
    digest = xxhash.xxh3_64()
    fixed = bytes(_read_all(file, _FIXED.size))
    header_length, count = _check_fixed(_FIXED.unpack(fixed), size)
    packed = bytes(_read_all(file, _LENGTH * count))
    lengths = struct.unpack(f"<{count}Q", packed)
    told = shortest + _LENGTH * count + header_length + sum(lengths)
    _check("sum of all lengths", size, told)
    header = bytes(_read_all(file, header_length))
    frames = [_read_all(file, length, digest) for length in lengths]
    digest.update(fixed + packed + header)
    found = digest.intdigest()
    (expected,) = _CHECKSUM.unpack(_read_all(file, _CHECKSUM.size))
    _check("checksum", f"{expected:016x}", f"{found:016x}")
    return header, frames


def _check_fixed(fixed: tuple[Any, ...], size: int) -> tuple[int, int]:
    """Return the header's length and the number of frames, which fit into so many bytes."""
    magic, version, flags, header_length, count, total = fixed
    _check("magic", MAGIC, magic)
    _check("format version", VERSION, version)
    _check("flags", 0, flags)
    _check("total length", size, total)
    least = _FIXED.size + _LENGTH * count + header_length + _CHECKSUM.size
    if least > size:
        raise CorruptFrameError(
            f"header length and number of frames: expected to fit into {size} bytes, "
            f"found {header_length} and {count}"
        )
    return header_length, count


def _check(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise CorruptFrameError(f"{what}: expected {expected!r}, found {found!r}")


def _flat(number: int, frame: Buffer) -> memoryview:
    # Unlike memoryview.cast, this takes empty frames and those in Fortran's order.
    try:
        return PickleBuffer(frame).raw()
    except BufferError as error:
        raise ValueError(f"frame {number} is not contiguous: copy it first") from error


def _write_all(file: Writable, view: memoryview) -> None:
    # A file without a buffer may take less than it is given.
    while view.nbytes:
        taken = file.write(view)
        if not taken:
            raise OSError(f"{file!r} takes none of the last {view.nbytes} bytes")
        view = view[taken:]


def _read_all(file: Readable, length: int, digest: xxhash.xxh3_64 | None = None) -> memoryview:
    # A bytearray would be filled with zeros first, at half the speed of reading.
    view = np.empty(length, np.uint8).data
    done = 0
    while done < length:
        # Without a buffer it may be less than asked for, and a file that is cut while read ends.
        got = file.readinto(view[done : done + _STEP])
        if not got:
            raise CorruptFrameError(
                f"end of the file: expected {length - done} more bytes, found 0"
            )
        if digest is not None:
            digest.update(view[done : done + got])
        done += got
    return view
