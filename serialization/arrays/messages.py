"""What the messages of all libraries share: the reader's name, and two forms besides one array.

The reader is named in the open and under the seal. Values of several arrays are the arrays'
messages, one after another (`join`); arrays without plain bytes are pickled (`pickle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any

import numpy as np
from distributed.protocol.serialize import pickle_dumps, pickle_loads

from gpusched.serialization import strided
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal
from gpusched.serialization.strided import Message

KEY = "as"
"""Where a header names its reader."""
_PICKLED, _PARTS = "pickled", "parts"
"""What only headers of `pickle` have, and of `join`."""


def pack(kind: str, array: np.ndarray, context: dict[str, Any] | None, **extra: Any) -> Message:
    """Return a host array as a message for the reader of that name.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.registration.READERS`.
    array, context, extra
        As in `gpusched.serialization.strided.pack`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import messages
    >>> message = messages.pack("torch", np.arange(3), None, requires_grad=False)
    >>> messages.unpack("torch", *message)
    (array([0, 1, 2]), {'requires_grad': False})
    >>> messages.unpack("jax", *message)
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: reader: expected 'jax', found 'torch'
    """
    return mark(kind, strided.pack(array, context, kind=kind, **extra))


def mark(kind: str, message: Message) -> Message:
    """Return a message of `gpusched.serialization.strided` with the reader's name in the open.

    Parameters
    ----------
    kind
        As for `pack`; what is sealed holds it under ``kind``.
    message
        A header and frames.
    """
    header, frames = message
    return {**header, KEY: kind}, frames


def unpack(kind: str, header: dict[str, Any],
           frames: list[Any]) -> tuple[np.ndarray, dict[str, Any]]:  # fmt: skip
    """Return the array, and what else was said of it.

    Raises `CorruptFrameError` if the message is damaged, or another reader's.
    """
    array, extra = strided.unpack(header, frames)
    check(kind, extra)
    return array, extra


def check(kind: str, extra: dict[str, Any]) -> None:
    """Take the reader's name out of what was sealed, and refuse any other.

    Raises `CorruptFrameError` if it is another.
    """
    found = extra.pop("kind", None)
    if found != kind:
        raise CorruptFrameError(f"reader: expected {kind!r}, found {found!r}")


def is_ours(header: Any) -> bool:
    """Return whether a header was written by this package, and not by distributed.

    Examples
    --------
    >>> from gpusched.serialization.arrays import messages
    >>> messages.is_ours({"dtype": (0, "<f8"), "shape": (3,)})
    False
    """
    return isinstance(header, dict) and (KEY in header or "gpusched" in header)


def pickle(kind: str, value: Any, context: dict[str, Any] | None = None) -> Message:
    """Return any value as a message for the reader of that name.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import messages
    >>> header, frames = messages.pickle("numpy", np.array(["a", None]))
    >>> messages.is_pickled(header), messages.unpickle("numpy", header, frames)
    (True, array(['a', None], dtype=object))
    """
    header, frames = pickle_dumps(value, context)
    flat = [PickleBuffer(frame).raw() for frame in frames]
    about = {"writeable": list(header["writeable"]), "kind": kind}
    return {"gpusched": seal(about, flat), KEY: kind, _PICKLED: True}, flat


def is_pickled(header: dict[str, Any]) -> bool:
    """Return whether a header is one of `pickle`."""
    return _PICKLED in header


def unpickle(kind: str, header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the value; it is unpickled only if not a byte has changed.

    Raises `CorruptFrameError` if the message is damaged, or another reader's.
    """
    about = unseal(header.get("gpusched"), frames)
    check(kind, about)
    writeable = about.get("writeable")
    if not isinstance(writeable, list) or len(writeable) != len(frames) - 1:
        raise CorruptFrameError(f"{len(frames)} frames, of which {writeable!r:.200} are named")
    return pickle_loads({"writeable": writeable}, frames)


def join(kind: str, messages: Sequence[Message], **extra: Any) -> Message:
    """Return messages as one, for the reader of that name.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.registration.READERS`.
    messages
        Each sealed by itself.
    extra
        What else the receiver must know: strings, numbers, lists.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import messages
    >>> both = [messages.pack("numpy", np.array(values), None) for values in ([1, 2], [True])]
    >>> found, extra = messages.split("masked", *messages.join("masked", both, hard=True))
    >>> [messages.unpack("numpy", *message)[0].tolist() for message in found], extra
    ([[1, 2], [True]], {'hard': True})
    """
    headers = [header for header, _ in messages]
    compression = [
        known
        for header, frames in messages
        for known in header.pop("compression", None) or [None] * len(frames)
    ]
    about = {"counts": [len(frames) for _, frames in messages], "extra": {**extra, "kind": kind}}
    header: dict[str, Any] = {"gpusched": seal(about, _seals(headers)), KEY: kind}
    header |= {_PARTS: headers, "compression": tuple(compression)}
    return header, [frame for _, frames in messages for frame in frames]


def is_joined(header: dict[str, Any]) -> bool:
    """Return whether a header is one of `join`."""
    return _PARTS in header


def split(kind: str, header: dict[str, Any],
          frames: list[Any]) -> tuple[list[Message], dict[str, Any]]:  # fmt: skip
    """Return the messages that were joined, and what else was said of them.

    Raises `CorruptFrameError` if they are not those; the frames are left to their own readers.
    """
    headers = header.get(_PARTS)
    if not isinstance(headers, list | tuple) or not all(isinstance(h, dict) for h in headers):
        raise CorruptFrameError(f"parts: expected headers, found {headers!r:.200}")
    about = unseal(header.get("gpusched"), _seals(headers))
    counts, extra = about.get("counts"), about.get("extra")
    if not isinstance(counts, list) or not isinstance(extra, dict):
        raise CorruptFrameError(f"description of parts: found {about!r:.200}")
    if len(counts) != len(headers) or sum(counts) != len(frames):
        raise CorruptFrameError(f"frames: expected {counts}, found {len(frames)}")
    check(kind, extra)
    rest = iter(frames)
    return [(h, [next(rest) for _ in range(n)]) for h, n in zip(headers, counts, strict=True)], (
        extra
    )


def _seals(headers: Sequence[dict[str, Any]]) -> list[bytes]:
    seals = [header.get("gpusched") for header in headers]
    if not all(isinstance(part, bytes) for part in seals):
        raise CorruptFrameError("parts: one has no seal")
    return seals  # type: ignore[return-value]
