"""Values of several arrays: the arrays' messages one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusched.serialization.arrays import kinds
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal

_KEY = "parts"


def join(kind: str, messages: Sequence[Message], **extra: Any) -> Message:
    """Return messages as one, for the reader of that name.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.families.READERS`.
    messages
        Each sealed by itself.
    extra
        What else the receiver must know: strings, numbers, lists.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import kinds, parts
    >>> data, mask = (kinds.pack("numpy", np.array(values), None) for values in ([1, 2], [True]))
    >>> messages, extra = parts.split("masked", *parts.join("masked", [data, mask], hard=True))
    >>> [kinds.unpack("numpy", *message)[0].tolist() for message in messages], extra
    ([[1, 2], [True]], {'hard': True})
    """
    headers = [header for header, _ in messages]
    compression = [
        known
        for header, frames in messages
        for known in header.pop("compression", None) or [None] * len(frames)
    ]
    about = {"counts": [len(frames) for _, frames in messages], "extra": {**extra, "kind": kind}}
    header: dict[str, Any] = {"gpusched": seal(about, _seals(headers)), kinds.KEY: kind}
    header |= {_KEY: headers, "compression": tuple(compression)}
    return header, [frame for _, frames in messages for frame in frames]


def is_joined(header: dict[str, Any]) -> bool:
    """Return whether a header is of this file's making."""
    return _KEY in header


def split(kind: str, header: dict[str, Any],
          frames: list[Any]) -> tuple[list[Message], dict[str, Any]]:  # fmt: skip
    """Return the messages that were joined, and what else was said of them.

    Raises
    ------
    CorruptFrameError
        If they are not those; the frames are left to their own readers.
    """
    headers = header.get(_KEY)
    if not isinstance(headers, list | tuple) or not all(isinstance(h, dict) for h in headers):
        raise CorruptFrameError(f"parts: expected headers, found {headers!r:.200}")
    about = unseal(header.get("gpusched"), _seals(headers))
    counts, extra = about.get("counts"), about.get("extra")
    if not isinstance(counts, list) or not isinstance(extra, dict):
        raise CorruptFrameError(f"description of parts: found {about!r:.200}")
    if len(counts) != len(headers) or sum(counts) != len(frames):
        raise CorruptFrameError(f"frames: expected {counts}, found {len(frames)}")
    kinds.check(kind, extra)
    rest = iter(frames)
    return [(h, [next(rest) for _ in range(n)]) for h, n in zip(headers, counts, strict=True)], (
        extra
    )


def _seals(headers: Sequence[dict[str, Any]]) -> list[bytes]:
    seals = [header.get("gpusched") for header in headers]
    if not all(isinstance(part, bytes) for part in seals):
        raise CorruptFrameError("parts: one has no seal")
    return seals  # type: ignore[return-value]
