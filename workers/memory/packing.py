"""Values as frames: serialized by distributed, and compressed in pieces where that pays.

Arrays are compressed by `gpusched.serialization.codec`, everything else as distributed does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed.protocol import pickle
from distributed.protocol.compression import decompress, maybe_compress
from distributed.protocol.serialize import deserialize, serialize
from distributed.utils import ensure_memoryview

from gpusched.serialization import codec

Buffer = bytes | bytearray | memoryview
Piece = tuple[str | None, Buffer]

# Frames are compressed in pieces of so many bytes, so that little more memory is taken than the
# frame's own. Pieces must be joined when they are read, which takes three times as long for chunks
# of 8 MB, so these are left whole.
_PIECE = 16 << 20


def pack(
    value: object, compression: str | None, disk: codec.Link | None = None
) -> tuple[bytes, list[Any]]:
    """Turn a value into a header and frames; those that are not compressed are not copied.

    Raises `TypeError` if the value cannot be serialized; the message says why; `MemoryError` if
    there is no room for what serializing takes.

    Parameters
    ----------
    value
        Any object that distributed or pickle can serialize.
    compression
        As distributed names it, for what is not an array; None for none. It is left out where it
        saves little.
    disk
        Where the frames are to be written. Without it, arrays are not compressed.

    Returns
    -------
    tuple
        The header and the frames, of which some may have to be made first, by
        `gpusched.serialization.codec.blocks.completed`.

    Examples
    --------
    >>> from gpusched.workers.memory.packing import pack, unpack
    >>> unpack(*pack({"a": [1, 2]}, "lz4"))
    {'a': [1, 2]}
    """
    header, parts = _serialize(value, codec.to_file(disk))
    # A serializer may have compressed its frames itself, or have said by False that it pays not.
    given = header.get("compression") or [None] * len(parts)
    layout: list[tuple[int, list[str | None]]] = []
    stored: list[Any] = []
    for part, name in zip(parts, given, strict=True):
        if isinstance(part, codec.blocks.Pending):
            layout.append((part.data.nbytes, [name]))
            stored.append(part)
            continue
        view = ensure_memoryview(part)
        pieces = _compress(view, compression) if name is None else [(name, view)]
        layout.append((view.nbytes, [name for name, _ in pieces]))
        stored.extend([buffer for _, buffer in pieces])
    return pickle.dumps((header, layout)), stored


def unpack(packed: bytes, frames: list[Any]) -> Any:
    """Return the value that was packed; frames that can be written to become its memory.

    Parameters
    ----------
    packed
        The header that `pack` returned.
    frames
        The frames. The list is emptied, so that each is let go once it is expanded.

    Examples
    --------
    >>> from gpusched.workers.memory.packing import pack, unpack
    >>> header, frames = pack(b"some bytes", None)
    >>> unpack(header, frames), frames
    (b'some bytes', [])
    """
    header, layout = pickle.loads(packed)
    frames.reverse()
    return deserialize(header, [_expand(nbytes, names, frames) for nbytes, names in layout])


def _serialize(value: object, context: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    try:
        return serialize(value, ("dask", "pickle"), on_error="raise", context=context)
    except Exception as error:
        # distributed's own message would hold the value's text, up to 10,000 characters of it.
        cause = error.__cause__ or error
        if isinstance(cause, MemoryError):
            raise cause from None
        reason = f"{type(value).__name__}: {type(cause).__name__}: {cause}"
        raise TypeError(reason) from error


def _compress(view: memoryview, compression: str | None) -> list[Piece]:
    places = range(0, view.nbytes, _PIECE)
    pieces = [maybe_compress(view[i : i + _PIECE], compression=compression) for i in places]
    return pieces if any(name for name, _ in pieces) else [(None, view)]


def _expand(nbytes: int, names: list[str | None], rest: list[Any]) -> Buffer:
    """Take as many frames from the end of `rest` as there are names, and join them."""
    if len(names) == 1:
        return _decompress(names[0], rest.pop())
    whole, start = np.empty(nbytes, np.uint8).data, 0
    for name in names:
        piece = _decompress(name, rest.pop())
        whole[start : start + len(piece)] = piece
        start += len(piece)
    return whole


def _decompress(name: str | None, frame: Buffer) -> Buffer:
    (raw,) = decompress({"compression": [name]}, [frame])
    return raw
