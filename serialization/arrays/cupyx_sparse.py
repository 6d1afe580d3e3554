"""CuPy's sparse matrices: their arrays, each as an array."""

from __future__ import annotations

import importlib
from typing import Any

from gpusched.serialization.arrays import cupy as dense
from gpusched.serialization.arrays import messages, without_gpu
from gpusched.serialization.arrays.host import Message
from gpusched.serialization.arrays.replacing import replace, replace_cuda
from gpusched.serialization.frames import CorruptFrameError

_KIND = "cupyx_sparse"
_COMPRESSED = ("data", "indices", "indptr")
_ARRAYS = {
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
"""What each format consists of."""


def cuda_serialize(matrix: Any) -> Message:
    """Return a matrix as a header and frames on the GPU."""
    arrays = [getattr(matrix, name) for name in _names(matrix)]
    return _join(matrix, [dense.cuda_serialize(array) for array in arrays])


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix, over the frames.

    Raises
    ------
    CorruptFrameError
        If the header is damaged.
    """
    from cupyx.scipy import sparse

    return _build(sparse, dense.cuda_deserialize, header, frames)


def serialize(matrix: Any, context: dict[str, Any] | None = None) -> Message:
    """Return a matrix as a header and frames in host memory."""
    arrays = [getattr(matrix, name) for name in _names(matrix)]
    return _join(matrix, [dense.serialize(array, context) for array in arrays])


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix, on the current device.

    Raises
    ------
    CorruptFrameError
        If the header or the frames are not those that were sent.
    WithoutGpuError
        If there is no GPU or no CuPy here, and no host matrix is wanted instead.
    """
    why = dense.missing()
    if why is None:
        from cupyx.scipy import sparse

        return _build(sparse, dense.deserialize, header, frames)
    without_gpu.allow_host("cupyx.scipy.sparse matrix", why, "a SciPy matrix")
    from scipy import sparse as host_sparse

    return _build(host_sparse, dense.deserialize, header, frames)


def _names(matrix: Any) -> tuple[str, ...]:
    names = _ARRAYS.get(matrix.format)
    if names is None:
        raise TypeError(f"{type(matrix).__name__}: only {', '.join(_ARRAYS)} matrices can be sent")
    return names


def _join(matrix: Any, sent: list[Message]) -> Message:
    return messages.join(_KIND, sent, format=matrix.format, shape=list(matrix.shape))


def _build(sparse: Any, read: Any, header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the matrix of the library `sparse`, CuPy's or SciPy's, which have the same names."""
    sent, extra = messages.split(_KIND, header, frames)
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
    from cupyx.scipy import sparse

    # Imported first, so that it does not take the place back later.
    importlib.import_module("distributed.protocol.cupy")
    for name in _ARRAYS:
        cls = getattr(sparse, f"{name}_matrix")
        replace(cls, serialize, deserialize)
        replace_cuda(cls, cuda_serialize, cuda_deserialize)
