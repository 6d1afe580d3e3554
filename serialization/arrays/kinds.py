"""Which library's reader a message is for, named in the open and under its seal."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.serialization.arrays import host
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.frames import CorruptFrameError

KEY = "as"
"""Where a header names its reader."""


def pack(kind: str, array: np.ndarray, context: dict[str, Any] | None, **extra: Any) -> Message:
    """Return a host array as a message for the reader of that name.

    Parameters
    ----------
    kind
        One of `gpusched.serialization.arrays.families.READERS`.
    array, context, extra
        As in `gpusched.serialization.arrays.host.pack`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import kinds
    >>> message = kinds.pack("torch", np.arange(3), None, requires_grad=False)
    >>> kinds.unpack("torch", *message)
    (array([0, 1, 2]), {'requires_grad': False})
    >>> kinds.unpack("jax", *message)
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: reader: expected 'jax', found 'torch'
    """
    return mark(kind, host.pack(array, context, kind=kind, **extra))


def mark(kind: str, message: Message) -> Message:
    """Return a message of `gpusched.serialization.arrays.host` with the reader's name in the open.

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

    Raises
    ------
    CorruptFrameError
        If the message is damaged, or another reader's.
    """
    array, extra = host.unpack(header, frames)
    check(kind, extra)
    return array, extra


def check(kind: str, extra: dict[str, Any]) -> None:
    """Take the reader's name out of what was sealed, and refuse any other.

    Raises
    ------
    CorruptFrameError
        If it is another.
    """
    found = extra.pop("kind", None)
    if found != kind:
        raise CorruptFrameError(f"reader: expected {kind!r}, found {found!r}")


def is_ours(header: Any) -> bool:
    """Return whether a header was written by this package, and not by distributed.

    Examples
    --------
    >>> from gpusched.serialization.arrays import kinds
    >>> kinds.is_ours({"dtype": (0, "<f8"), "shape": (3,)})
    False
    """
    return isinstance(header, dict) and (KEY in header or "gpusched" in header)
