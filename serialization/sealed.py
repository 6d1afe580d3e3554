"""A checksum over frames and what is said of them, so that neither is read if damaged.

A seal holds, all numbers little-endian::

    magic       8 bytes   b"gpuarray"
    version     u16       of this layout
    checksum    u64       xxh3_64 of the description, then of the frames
    description bytes     msgpack: a map, with the frames' lengths under "lengths"
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack
import xxhash

from gpusched.serialization.frames import CorruptFrameError

MAGIC = b"gpuarray"
MAGIC_CONTAINED = b"in-files"
VERSION = 1
_FIXED = struct.Struct("<8sHQ")
_LONGEST = 16 << 20
"""Bytes of a description; real ones take some hundred."""


def contain(about: Mapping[str, Any]) -> bytes:
    """Return a description without a checksum, for frames in a container that has its own.

    Other containers need not state their lengths in advance: `unseal` finds none to compare.

    Examples
    --------
    >>> from gpusched.serialization.sealed import contain, unseal
    >>> unseal(contain({"about": "these"}), [b"12"])
    {'about': 'these'}
    """
    return _FIXED.pack(MAGIC_CONTAINED, VERSION, 0) + msgpack.packb(about)


def seal(about: Mapping[str, Any], frames: Sequence[Any]) -> bytes:
    """Return a description of frames with a checksum of both.

    Parameters
    ----------
    about
        What msgpack can write. The key ``lengths`` is taken.
    frames
        Contiguous buffers of bytes.

    Examples
    --------
    >>> from gpusched.serialization.sealed import seal, unseal
    >>> unseal(seal({"about": "these"}, [b"12"]), [b"12"])
    {'about': 'these', 'lengths': [2]}
    >>> unseal(seal({"about": "these"}, [b"12"]), [b"13"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: checksum: expected ..., found ...
    """
    description = msgpack.packb({**about, "lengths": _lengths(frames)})
    return _FIXED.pack(MAGIC, VERSION, _checksum(description, frames)) + description


def unseal(sealed: Any, frames: Sequence[Any]) -> dict[str, Any]:
    """Return the description, of frames that are those that were sealed.

    Raises `CorruptFrameError` if they are not, or the description is not what was written.
    """
    if not isinstance(sealed, bytes) or not _FIXED.size < len(sealed) <= _LONGEST:
        raise CorruptFrameError(f"seal: expected some hundred bytes, found {sealed!r:.100}")
    magic, version, expected = _FIXED.unpack_from(sealed)
    description = sealed[_FIXED.size :]
    if (magic, version, expected) == (MAGIC_CONTAINED, VERSION, 0):
        return _read(description)
    if (magic, version) != (MAGIC, VERSION):
        raise CorruptFrameError(
            f"magic and version: expected {MAGIC!r} and {VERSION}, found {magic!r} and {version}"
        )
    found = _checksum(description, frames)
    if found != expected:
        raise CorruptFrameError(f"checksum: expected {expected:016x}, found {found:016x}")
    about = _read(description)
    if about.get("lengths") != _lengths(frames):
        raise CorruptFrameError(
            f"lengths of frames: expected {about.get('lengths')!r:.200}, found {_lengths(frames)}"
        )
    return about


def _read(description: bytes) -> dict[str, Any]:
    try:
        about = msgpack.unpackb(description)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptFrameError(f"description: {error}") from error
    if not isinstance(about, dict):
        raise CorruptFrameError(f"description: expected a map, found {about!r:.100}")
    return about


def _lengths(frames: Iterable[Any]) -> list[int]:
    return [memoryview(frame).nbytes for frame in frames]


def _checksum(description: bytes, frames: Iterable[Any]) -> int:
    digest = xxhash.xxh3_64(description)
    for frame in frames:
        digest.update(frame)
    return digest.intdigest()
