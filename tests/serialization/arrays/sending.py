"""Values on their way through a message of distributed's, as over a socket."""

from __future__ import annotations

from typing import Any

from distributed.protocol import dumps, loads, to_serialize

import gpusched.serialization  # noqa: F401

CONTEXT = {
    "compression": None,
    "sender": {"address": "tcp://a:1"},
    "recipient": {"address": "tcp://b:1"},
}
"""What distributed tells serializers of a connection, where it compresses nothing itself."""


def frames_of(value: Any, **context: Any) -> list[Any]:
    """Return a message's frames, each in memory of its own."""
    told = {**CONTEXT, **context}
    return [bytearray(frame) for frame in dumps({"value": to_serialize(value)}, context=told)]


def received(frames: list[Any]) -> Any:
    """Return the value of a message."""
    return loads(frames, deserializers=("dask", "pickle", "error"))["value"]


def sent(value: Any, **context: Any) -> Any:
    """Return what arrives of a value."""
    return received(frames_of(value, **context))


def nbytes_sent(value: Any) -> int:
    """Return the bytes of a message."""
    return sum(map(len, frames_of(value)))
