"""Arrays without plain bytes: pickled, their buffers beside the pickle, under a seal."""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

from distributed.protocol.serialize import pickle_dumps, pickle_loads

from gpusched.serialization.arrays import kinds
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal

_KEY = "pickled"


def pack(kind: str, value: Any, context: dict[str, Any] | None = None) -> Message:
    """Return any value as a message for the reader of that name.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.serialization.arrays import pickled
    >>> header, frames = pickled.pack("numpy", np.array(["a", None]))
    >>> pickled.is_pickled(header), pickled.unpack("numpy", header, frames)
    (True, array(['a', None], dtype=object))
    """
    header, frames = pickle_dumps(value, context)
    flat = [PickleBuffer(frame).raw() for frame in frames]
    about = {"writeable": list(header["writeable"]), "kind": kind}
    return {"gpusched": seal(about, flat), kinds.KEY: kind, _KEY: True}, flat


def is_pickled(header: dict[str, Any]) -> bool:
    """Return whether a header is of this file's making."""
    return _KEY in header


def unpack(kind: str, header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the value; it is unpickled only if not a byte has changed.

    Raises
    ------
    CorruptFrameError
        If the message is damaged, or another reader's.
    """
    about = unseal(header.get("gpusched"), frames)
    kinds.check(kind, about)
    writeable = about.get("writeable")
    if not isinstance(writeable, list) or len(writeable) != len(frames) - 1:
        raise CorruptFrameError(f"{len(frames)} frames, of which {writeable!r:.200} are named")
    return pickle_loads({"writeable": writeable}, frames)
