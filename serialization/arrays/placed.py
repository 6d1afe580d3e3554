"""Chunks in device memory that are NumPy arrays to the program: see `gpusched.placed`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from gpusched.placed import Placed, mover
from gpusched.serialization.arrays import cupy, device, messages
from gpusched.serialization.arrays.registration import replace, replace_cuda
from gpusched.serialization.strided import Message

_KIND = "placed"


def serialize(value: Placed, context: dict[str, Any] | None = None) -> Message:
    """Return a chunk as a header and frames in host memory."""
    return cupy.pack_to_host(_KIND, value.array, context)


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the chunk: in device memory where this process keeps chunks, else NumPy's array.

    It is NumPy's too where the device has no room for it: its task then finds that out. Raises
    `CorruptFrameError` if the header or the frames are not those that were sent.
    """
    if mover() is not None:
        with suppress(MemoryError):
            return Placed(cupy.unpack_to_device(_KIND, header, frames)[0])
    return messages.unpack(_KIND, header, frames)[0]


def cuda_serialize(value: Placed) -> Message:
    """Return a chunk as a header and a frame on the GPU."""
    return cupy.pack_on_device(_KIND, value.array)


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Placed | np.ndarray:
    """Return the chunk, over the frame, or a NumPy array where no chunks are kept on the device.

    Raises `CorruptFrameError` if the header is damaged.
    """
    import cupy as library

    layout, dtype, frame, _ = device.unpack(_KIND, header, frames)
    array = cupy.place(layout, dtype, library.asarray(frame))
    return cupy.to_host(array) if mover() is None else Placed(array)


def register() -> None:
    """Register the functions with distributed."""
    replace(Placed, serialize, deserialize)
    replace_cuda(Placed, cuda_serialize, cuda_deserialize)
