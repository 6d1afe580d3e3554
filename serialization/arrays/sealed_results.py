"""Results that one worker sends to another: one message, of which no byte is left unchecked.

Arrays have a checksum of their own, and their headers are under this one: their bytes are not read
twice. What distributed has pickled, and what it says of collections, has no other. Keys are inside,
so that no result arrives under another one's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import xxhash
from dask.sizeof import sizeof
from dask.typing import Key
from distributed.protocol.compression import decompress, maybe_compress
from distributed.protocol.serialize import (
    Serialize,
    dask_serialize,
    msgpack_decode_default,
    msgpack_encode_default,
)
from distributed.protocol.serialize import deserialize as from_frames
from distributed.protocol.serialize import serialize as to_frames
from distributed.protocol.utils import msgpack_opts
from distributed.utils import ensure_memoryview

from gpusched.serialization.arrays import messages
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal
from gpusched.serialization.strided import Message

_KIND = "results"


class Results:
    """What a worker sends, by key; whoever reads the message gets a dict.

    Examples
    --------
    >>> from distributed.protocol import deserialize, serialize
    >>> from gpusched.serialization.arrays.sealed_results import Results
    >>> header, frames = serialize(Results({"a": {"number": b"1"}}))
    >>> deserialize(header, frames)
    {'a': {'number': b'1'}}
    >>> deserialize(header, [*frames[:-1], b"2"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: checksum of results: expected ..., found ...
    """

    def __init__(
        self, data: Mapping[Key, Any], serializers: Sequence[str] = ("dask", "pickle")
    ) -> None:
        self.data = dict(data)
        self.serializers = serializers


@sizeof.register(Results)
def _size(results: Results) -> int:
    # By this distributed decides whether to write the message off the event loop.
    return sizeof(results.data)


@dask_serialize.register(Results)
def serialize(results: Results, context: dict[str, Any] | None = None) -> Message:
    """Return results as a header and frames; what is to be compressed is compressed here."""
    compression = (context or {}).get("compression")
    told, frames, checked = [], [], []
    for key, value in results.data.items():
        header, written = to_frames(Serialize(value), results.serializers, context=context)
        parts: list[Any] = list(written)
        names = list(header.get("compression") or [None] * len(parts))
        for place, name in enumerate(names):
            # Before the checksum is made, since what is damaged must not be expanded.
            if name is None and compression:
                names[place], parts[place] = maybe_compress(parts[place], compression=compression)
        told.append((key, header, names))
        frames += parts
        checked += [ensure_memoryview(parts[place]) for place in _unchecked(header, names)]
    content = {"results": told, "checksum": _checksum(checked), "lengths": _lengths(checked)}
    description = msgpack.packb(content, default=msgpack_encode_default, use_bin_type=True)
    header = {"gpusched": seal({"kind": _KIND}, [description]), messages.KEY: _KIND}
    # Nothing is left for distributed to compress.
    return {**header, "compression": (False,) * (1 + len(frames))}, [description, *frames]


def deserialize(header: dict[str, Any], frames: list[Any]) -> dict[Key, Any]:
    """Return the results by key.

    Raises `CorruptFrameError` if the message, or an array in it, is not what was sent.
    """
    messages.check(_KIND, unseal(header.get("gpusched"), frames[:1]))
    content = msgpack.unpackb(
        frames[0], object_hook=msgpack_decode_default, use_list=False, **msgpack_opts
    )
    expected = 1 + sum(len(names) for _, _, names in content["results"])
    if len(frames) != expected:
        raise CorruptFrameError(f"frames of results: expected {expected}, found {len(frames)}")
    rest = iter(frames[1:])
    received, checked = [], []
    for key, told, names in content["results"]:
        parts = [next(rest) for _ in names]
        received.append((key, told, names, parts))
        checked += [ensure_memoryview(parts[place]) for place in _unchecked(told, names)]
    found = _checksum(checked)
    if (found, _lengths(checked)) != (content["checksum"], list(content["lengths"])):
        raise CorruptFrameError(
            f"checksum of results: expected {content['checksum']:016x}, found {found:016x}"
        )
    return {
        key: from_frames(told, decompress({"compression": names}, parts))
        for key, told, names, parts in received
    }


def _unchecked(header: dict[str, Any], names: Sequence[Any]) -> Iterator[int]:
    """Yield the places of frames that have no checksum of their own, or none in this form."""
    sealed = set(_sealed(header, 0, len(names)))
    return (place for place, name in enumerate(names) if name or place not in sealed)


def _sealed(header: dict[str, Any], start: int, count: int) -> Iterator[int]:
    if "is-collection" in header:
        for inner, length in zip(header["sub-headers"], header["frame-lengths"], strict=True):
            yield from _sealed(inner, start, length)
            start += length
    elif messages.is_ours(header.get("sub-header")):
        yield from range(start, start + count)


def _checksum(frames: Iterable[memoryview]) -> int:
    digest = xxhash.xxh3_64()
    for frame in frames:
        digest.update(frame)
    return digest.intdigest()


def _lengths(frames: Iterable[memoryview]) -> list[int]:
    return [frame.nbytes for frame in frames]
