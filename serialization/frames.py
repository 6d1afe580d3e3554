"""A checked container for byte buffers: what a file of spilled results holds.

Layout, all numbers little-endian::

    magic       8 bytes   b"gpusched"
    version     u16
    reserved    u16       0
    header      u32       length in bytes
    frames      u32       how many
    reserved    u32       0
    total       u64       length of everything, checksum included
    lengths     u64 each
    header      bytes
    frames      bytes
    checksum    u64       xxh3_64 of everything before it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import xxhash

MAGIC = b"gpusched"
VERSION = 1
_FIXED = struct.Struct("<8sHHIIIQ")
_CHECKSUM = struct.Struct("<Q")
_LENGTH = 8


class CorruptFrameError(ValueError):
    """Bytes are not what was written; the message says which check failed."""


def write(file: BinaryIO, header: bytes, frames: Sequence[Any]) -> int:
    """Write a header and frames to an open file, without joining them.

    Parameters
    ----------
    file
        Open for writing in binary, at its beginning.
    header
        Any bytes.
    frames
        Objects with the buffer protocol, C-contiguous.

    Returns
    -------
    int
        The bytes written.

    Raises
    ------
    OSError
        If the disk is full, for one.

    Examples
    --------
    >>> import io
    >>> from gpusched.serialization import frames
    >>> file = io.BytesIO()
    >>> written = frames.write(file, b"about", [b"first", b"second"])
    >>> _ = file.seek(0)
    >>> header, read = frames.read(file, written)
    >>> header, [bytes(frame) for frame in read]
    (b'about', [b'first', b'second'])
    """
    views = [memoryview(frame).cast("B") if _length(frame) else memoryview(b"") for frame in frames]
    lengths = [view.nbytes for view in views]
    before = _FIXED.size + _LENGTH * len(views) + len(header) + sum(lengths)
    total = before + _CHECKSUM.size
    fixed = _FIXED.pack(MAGIC, VERSION, 0, len(header), len(views), 0, total)
    digest = xxhash.xxh3_64()
    before_frames = memoryview(fixed + struct.pack(f"<{len(views)}Q", *lengths) + header)
    for view in (before_frames, *views):
        digest.update(view)
        _write_all(file, view)
    _write_all(file, memoryview(_CHECKSUM.pack(digest.intdigest())))
    return total


def read(file: BinaryIO, size: int) -> tuple[bytes, list[bytearray]]:
    """Read what `write` wrote.

    Every length is checked against `size` before anything of that length is allocated.

    Parameters
    ----------
    file
        Open for reading in binary, at its beginning.
    size
        Bytes of the file.

    Returns
    -------
    tuple
        The header, and the frames, which may be written to.

    Raises
    ------
    CorruptFrameError
        If the file is not what was written.
    """
    if size < _FIXED.size + _CHECKSUM.size:
        raise CorruptFrameError(f"{size} bytes are too few for a header")
    fixed = _read_all(file, _FIXED.size)
    magic, version, _, header_length, count, _, total = _FIXED.unpack(fixed)
    if magic != MAGIC:
        raise CorruptFrameError(f"starts with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise CorruptFrameError(f"has format version {version}; this gpusched reads {VERSION}")
    if total != size:
        raise CorruptFrameError(f"has {size} bytes instead of {total}")
    before = _FIXED.size + _LENGTH * count + header_length + _CHECKSUM.size
    if before > size:
        raise CorruptFrameError(f"tells of {before} bytes besides its frames, and has {size}")
    packed = _read_all(file, _LENGTH * count)
    lengths = struct.unpack(f"<{count}Q", packed)
    if before + sum(lengths) != size:
        raise CorruptFrameError(f"tells of {before + sum(lengths)} bytes, and has {size}")
    header = _read_all(file, header_length)
    frames = [_read_all(file, length) for length in lengths]
    (expected,) = _CHECKSUM.unpack(_read_all(file, _CHECKSUM.size))
    digest = xxhash.xxh3_64()
    for part in (fixed, packed, header, *frames):
        digest.update(part)
    if digest.intdigest() != expected:
        raise CorruptFrameError(
            f"has checksum {digest.intdigest():016x} instead of {expected:016x}"
        )
    return bytes(header), frames


def _length(frame: Any) -> int:
    # An empty view of another format cannot be cast.
    return memoryview(frame).nbytes


def _write_all(file: BinaryIO, view: memoryview) -> None:
    # A file without a buffer may write less than it is given.
    while view.nbytes:
        view = view[file.write(view) :]


def _read_all(file: BinaryIO, length: int) -> bytearray:
    buffer = bytearray(length)
    view, done = memoryview(buffer), 0
    while done < length:
        # A file that shrinks while it is read ends early.
        got = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise CorruptFrameError(f"ends {length - done} bytes too early")
        done += got
    return buffer
