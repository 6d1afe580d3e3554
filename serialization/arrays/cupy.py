"""CuPy's arrays, and its sparse matrices: their arrays, each as an array."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gpusched.serialization import codec, strided
from gpusched.serialization.arrays import device, messages
from gpusched.serialization.arrays.registration import replace, replace_cuda
from gpusched.serialization.dtypes import is_plain
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.strided import Layout, Message, compact, restore

_KIND, _SPARSE = "cupy", "cupyx_sparse"
_COMPRESSED = ("data", "indices", "indptr")
_ARRAYS = {
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
"""What each format consists of."""


def cuda_serialize(array: Any) -> Message:
    """Return an array as a header and a frame on the GPU; only arrays with gaps are copied."""
    if not _is_plain(array):
        raise NotImplementedError("subclasses may hold more than the array")
    return pack_on_device(_KIND, array)


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, over the frame.

    Raises `CorruptFrameError` if the header is damaged.
    """
    import cupy

    if not messages.is_ours(header):
        from distributed.protocol.cupy import cuda_deserialize_cupy_ndarray

        return cuda_deserialize_cupy_ndarray(header, frames)
    layout, dtype, frame, _ = device.unpack(_KIND, header, frames)
    return place(layout, dtype, cupy.asarray(frame))


def serialize(array: Any, context: dict[str, Any] | None = None) -> Message:
    """Return an array as a header and frames in host memory; subclasses are pickled."""
    if not _is_plain(array):
        return messages.pickle(_KIND, array, context)
    return pack_to_host(_KIND, array, context)


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, on the current device.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `WithoutGpuError` if there is no GPU or no CuPy here, and no host array is wanted instead.
    """
    if not messages.is_ours(header):
        from distributed.protocol.cupy import dask_deserialize_cupy_ndarray

        return dask_deserialize_cupy_ndarray(header, frames)
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    why = missing()
    if why is None:
        return unpack_to_device(_KIND, header, frames)[0]
    device.allow_host("cupy.ndarray", why)
    return messages.unpack(_KIND, header, frames)[0]


def missing() -> str | None:
    """Return why there can be no CuPy array in this process, or None if there can."""
    if not device.is_installed("cupy"):
        return "CuPy is not installed"
    import cupy

    return None if cupy.cuda.is_available() else "CuPy finds no GPU"


def pack_on_device(kind: str, array: Any, /, **extra: Any) -> Message:
    """Return an array, of CuPy's or wrapped by it, as a message for the reader of that name."""
    import cupy

    array = cupy.asarray(array)
    layout, flat = compact(array, cupy.ascontiguousarray)
    # Whoever sends the frame uses another stream than the one that fills it.
    cupy.cuda.get_current_stream().synchronize()
    return device.pack(kind, layout, array.dtype, flat, **extra)


def pack_to_host(kind: str, array: Any, context: dict[str, Any] | None, /, **extra: Any) -> Message:
    """Return an array of CuPy's as a message in host memory for the reader of that name.

    It is compressed where that pays, after a shuffle on the GPU.
    """
    import cupy

    layout, flat = compact(array, cupy.ascontiguousarray)
    message = strided.pack_bytes(layout, array.dtype, flat, context, kind=kind, **extra)
    return messages.mark(kind, message)


def unpack_to_device(kind: str, header: dict[str, Any],
                     frames: list[Any]) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Return an array of CuPy's on the current device, and what else was said of it.

    Raises `CorruptFrameError` if the message is damaged, or another reader's.
    """
    layout, dtype, data, extra = strided.unpack_to_device(header, frames)
    messages.check(kind, extra)
    return place(layout, dtype, data), extra


def to_device(array: np.ndarray, wait: bool = True) -> Any:
    """Return a host array's copy on the current device, in the same order and without gaps.

    Without waiting it is there for what the calling thread's stream is given next.
    """
    layout, flat = compact(array)
    return place(layout, array.dtype, codec.to_device(flat, wait))


def to_host(array: Any) -> np.ndarray:
    """Return a device array's copy in host memory, in the same order and without gaps."""
    import cupy

    layout, flat = compact(array, cupy.ascontiguousarray)
    return restore(layout, array.dtype, codec.device.download(flat))


def place(layout: Layout, dtype: np.dtype, data: Any) -> Any:
    """Return the array that is laid out so in an array of bytes."""
    import cupy

    return cupy.ndarray(layout.shape, dtype, data.data + layout.offset, layout.strides)


def _is_plain(array: Any) -> bool:
    import cupy

    return type(array) is cupy.ndarray and is_plain(array.dtype)


def cuda_serialize_sparse(matrix: Any) -> Message:
    """Return a matrix as a header and frames on the GPU."""
    arrays = [getattr(matrix, name) for name in _names(matrix)]
    return _join(matrix, [cuda_serialize(array) for array in arrays])


def cuda_deserialize_sparse(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix, over the frames.

    Raises `CorruptFrameError` if the header is damaged.
    """
    from cupyx.scipy import sparse

    return _build(sparse, cuda_deserialize, header, frames)


def serialize_sparse(matrix: Any, context: dict[str, Any] | None = None) -> Message:
    """Return a matrix as a header and frames in host memory."""
    arrays = [getattr(matrix, name) for name in _names(matrix)]
    return _join(matrix, [serialize(array, context) for array in arrays])


def deserialize_sparse(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix, on the current device.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `WithoutGpuError` if there is no GPU or no CuPy here, and no host matrix is wanted instead.
    """
    why = missing()
    if why is None:
        from cupyx.scipy import sparse

        return _build(sparse, deserialize, header, frames)
    device.allow_host("cupyx.scipy.sparse matrix", why, "a SciPy matrix")
    from scipy import sparse as host_sparse

    return _build(host_sparse, deserialize, header, frames)


def _names(matrix: Any) -> tuple[str, ...]:
    names = _ARRAYS.get(matrix.format)
    if names is None:
        raise TypeError(f"{type(matrix).__name__}: only {', '.join(_ARRAYS)} matrices can be sent")
    return names


def _join(matrix: Any, sent: list[Message]) -> Message:
    return messages.join(_SPARSE, sent, format=matrix.format, shape=list(matrix.shape))


def _build(sparse: Any, read: Any, header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix of the library `sparse`, CuPy's or SciPy's, which have the same names."""
    sent, extra = messages.split(_SPARSE, header, frames)
    names = _ARRAYS.get(extra.get("format", ""))
    if names is None or len(names) != len(sent):
        raise CorruptFrameError(f"matrix: expected one of {list(_ARRAYS)}, found {extra!r:.200}")
    data, *places = (read(*message) for message in sent)
    build = getattr(sparse, f"{extra['format']}_matrix")
    shape = tuple(extra["shape"])
    if extra["format"] == "coo":
        return build((data, tuple(places)), shape=shape)
    return build((data, *places), shape=shape)


def register() -> None:
    """Take the place of distributed's own functions."""
    import cupy
    from cupyx.scipy import sparse

    # Imported first, so that it does not take the place back later.
    importlib.import_module("distributed.protocol.cupy")
    replace(cupy.ndarray, serialize, deserialize)
    replace_cuda(cupy.ndarray, cuda_serialize, cuda_deserialize)
    for name in _ARRAYS:
        cls = getattr(sparse, f"{name}_matrix")
        replace(cls, serialize_sparse, deserialize_sparse)
        replace_cuda(cls, cuda_serialize_sparse, cuda_deserialize_sparse)
