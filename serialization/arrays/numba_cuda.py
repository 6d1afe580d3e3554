"""numba's arrays on the GPU."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.serialization.arrays import cupy, device, messages
from gpusched.serialization.arrays.device import Region, has_gaps, span
from gpusched.serialization.arrays.registration import replace, replace_cuda
from gpusched.serialization.strided import Layout, Message, compact, restore

_KIND = "numba_cuda"


def cuda_serialize(array: Any) -> Message:
    """Return an array as a header and a frame on the GPU.

    Raises `NotImplementedError` if the array has gaps, and there is no CuPy to close them;
    distributed then goes on with the next family, through the host.
    """
    layout, region = span(array, array.dtype.itemsize)
    if not has_gaps(layout, array.dtype.itemsize):
        return device.pack(_KIND, layout, array.dtype, region)
    if cupy.missing() is not None:
        raise NotImplementedError("numba has no function that copies strided arrays")
    return cupy.pack_on_device(_KIND, array)


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, over the frame.

    Raises `CorruptFrameError` if the header is damaged.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numba import cuda_deserialize_numba_ndarray

        return cuda_deserialize_numba_ndarray(header, frames)
    layout, dtype, frame, _ = device.unpack(_KIND, header, frames)
    return _place(layout, dtype, frame)


def serialize(array: Any, context: dict[str, Any] | None = None) -> Message:
    """Return an array as a header and frames in host memory."""
    return messages.pack(_KIND, _to_host(array), context)


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, on the current device.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `WithoutGpuError` if there is no GPU or no numba here, and no host array is wanted instead.
    """
    if not messages.is_ours(header):
        from distributed.protocol.numba import dask_deserialize_numba_array

        return dask_deserialize_numba_array(header, frames)
    array, _ = messages.unpack(_KIND, header, frames)
    why = _missing()
    if why is None:
        return _to_device(array)
    device.allow_host("numba.cuda array", why)
    return array


def _missing() -> str | None:
    if not device.is_installed("numba.cuda"):
        return "numba.cuda is not installed"
    import numba.cuda

    return None if numba.cuda.is_available() else "numba finds no GPU"


def _to_host(array: Any) -> np.ndarray:
    from numba import cuda

    # Gaps are copied too, because numba cannot leave them out; they are not sent.
    layout, region = span(array, array.dtype.itemsize)
    data = cuda.as_cuda_array(region).copy_to_host() if region.nbytes else np.empty(0, np.uint8)
    return restore(layout, array.dtype, data)


def _to_device(array: np.ndarray) -> Any:
    from numba import cuda

    layout, flat = compact(array)
    data = cuda.to_device(flat)
    # Tasks that read it have streams of their own.
    cuda.default_stream().synchronize()
    return _place(layout, array.dtype, data)


def _place(layout: Layout, dtype: np.dtype, data: Any) -> Any:
    """Return the array that is laid out so in an array of bytes."""
    from numba import cuda

    if not data.nbytes:
        return cuda.device_array(layout.shape, dtype)
    start = data.__cuda_array_interface__["data"][0] + layout.offset
    memory = cuda.as_cuda_array(Region(data, start, data.nbytes - layout.offset))
    return cuda.devicearray.DeviceNDArray(
        layout.shape, layout.strides, dtype, gpu_data=memory.gpu_data
    )


def register() -> None:
    """Take the place of distributed's own functions."""
    import numba.cuda

    # Imported first, so that it does not take the place back later.
    importlib.import_module("distributed.protocol.numba")
    cls = numba.cuda.devicearray.DeviceNDArray
    replace(cls, serialize, deserialize)
    replace_cuda(cls, cuda_serialize, cuda_deserialize)
