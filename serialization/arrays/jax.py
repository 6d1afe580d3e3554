"""JAX's arrays.

They arrive on one device, the receiver's default one, as when JAX pickles them. Under ``jax.jit``
there are no values to send, and of an array that is spread over several processes none has all.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from gpusched.serialization.arrays import device, messages
from gpusched.serialization.arrays.device import Region, dense_strides
from gpusched.serialization.arrays.registration import replace, replace_cuda
from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.strided import Layout, Message

_KIND = "jax"
_OF_THEIR_SIZE = {1: "u1", 2: "u2"}
"""Dtypes of NumPy's own, by their bytes, for those of ml_dtypes."""


def cuda_serialize(array: Any) -> Message:
    """Return an array on a GPU as a header and a frame there, which is not copied.

    Raises `NotImplementedError` if the array is not on one GPU in C's order, or takes less than a
    byte an element; distributed then goes on with the next family.
    """
    if not _is_plain(array) or not _is_on_gpu(array) or not _is_dense(array):
        raise NotImplementedError("only dense arrays on one GPU have a frame there")
    # Whoever sends the frame uses another stream than the one that fills it.
    array.block_until_ready()
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    layout = Layout(shape, dense_strides(shape, dtype.itemsize), 0)
    region = Region(array, array.unsafe_buffer_pointer(), array.nbytes)
    return device.pack(_KIND, layout, dtype, region)


def cuda_deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, copied from the frame, since JAX must own what nobody may change.

    Raises `CorruptFrameError` if the header is damaged.
    """
    import jax

    layout, dtype, frame, _ = device.unpack(_KIND, header, frames)
    if layout.offset or layout.strides != dense_strides(layout.shape, dtype.itemsize):
        raise CorruptFrameError(f"array: expected elements in C's order, found {layout}")
    # The interface knows no dtypes but NumPy's.
    held = dtype if dtype.isbuiltin == 1 else np.dtype(_OF_THEIR_SIZE[dtype.itemsize])
    pointer = frame.__cuda_array_interface__["data"][0]
    region = Region(frame, pointer, frame.nbytes)
    region.__cuda_array_interface__ |= {"shape": layout.shape, "typestr": held.str}
    with _wide():
        array = jax.numpy.array(region, copy=True)
        if held != dtype:
            array = jax.lax.bitcast_convert_type(array, dtype)
        return array.block_until_ready()


def serialize(array: Any, context: dict[str, Any] | None = None) -> Message:
    """Return an array as a header and frames in host memory, or pickled by JAX.

    It pickles keys of random numbers, and arrays of a weak type, which nobody else can make.

    Raises `RuntimeError` if the array is spread over several processes.

    Examples
    --------
    >>> import jax
    >>> from gpusched.serialization.arrays.jax import deserialize, serialize
    >>> deserialize(*serialize(jax.numpy.ones((1, 2), "bfloat16")))
    Array([[1, 1]], dtype=bfloat16)
    """
    if not _is_plain(array):
        return messages.pickle(_KIND, array, context)
    place = "gpu" if _is_on_gpu(array) else "other"
    return messages.pack(_KIND, np.asarray(array), context, device=place)


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array, on the default device.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `ModuleNotFoundError` if there is no JAX here; `WithoutGpuError` if the array was on a GPU,
    there is none here, and no array on the CPU is wanted instead.
    """
    device.require("jax", "a JAX array")
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    import jax

    array, about = messages.unpack(_KIND, header, frames)
    if about.get("device") == "gpu" and jax.default_backend() != "gpu":
        device.allow_host("JAX array of a GPU", "JAX finds no GPU", "an array on the CPU")
    # Where 64 bits are off they are for new arrays, and the array has them already.
    with _wide():
        return jax.device_put(array)


def _is_plain(array: Any) -> bool:
    """Return whether bytes, shape and dtype are all; of keys and weak types JAX knows more."""
    import jax

    return not (jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended) or array.weak_type)


def _is_on_gpu(array: Any) -> bool:
    return {each.platform for each in array.devices()} == {"gpu"}


def _is_dense(array: Any) -> bool:
    """Return whether elements are in one GPU's memory in C's order, each in bytes of its own."""
    name, builtin = array.dtype.name, np.dtype(array.dtype).isbuiltin == 1
    if len(array.devices()) != 1 or not (builtin or name.startswith(("bfloat16", "float8"))):
        return False
    order = array.format.layout.major_to_minor
    return tuple(order) == tuple(range(array.ndim))


def _wide() -> contextlib.AbstractContextManager[Any]:
    """Let arrays have 64 bits."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64(True)


def register() -> None:
    """Register JAX's arrays, which distributed pickles and dask does not size."""
    import jax

    replace(jax.Array, serialize, deserialize)
    replace_cuda(jax.Array, cuda_serialize, cuda_deserialize)
    sizeof.register(jax.Array, _nbytes)


def _nbytes(array: Any) -> int:
    return int(array.nbytes)
