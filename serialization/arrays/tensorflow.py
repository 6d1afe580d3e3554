"""TensorFlow's tensors that have a value.

Variables, sparse and ragged tensors are pickled, as TensorFlow has it. Tensors on the CPU stay
there; those on a GPU land on the receiver's first one, through the host: TensorFlow lends its GPU
memory by DLPack only, which a connection does not take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.sizeof import sizeof

from gpusched.serialization.arrays import device, messages
from gpusched.serialization.arrays.registration import replace
from gpusched.serialization.dtypes import is_plain
from gpusched.serialization.strided import Message

_KIND = "tensorflow"


def serialize(tensor: Any, context: dict[str, Any] | None = None) -> Message:
    """Return a tensor as a header and frames in host memory; those of texts are pickled.

    Raises `NotImplementedError` if the tensor has no value yet.

    Examples
    --------
    >>> import tensorflow
    >>> from gpusched.serialization.arrays.tensorflow import deserialize, serialize
    >>> deserialize(*serialize(tensorflow.zeros((2, 3), "bfloat16"))).dtype
    tf.bfloat16
    """
    if not hasattr(tensor, "numpy"):
        raise NotImplementedError("within a tf.function, tensors have no values")
    array = np.asarray(tensor.numpy())
    if not is_plain(array.dtype):
        return messages.pickle(_KIND, tensor, context)
    place = "gpu" if _is_on_gpu(tensor) else "cpu"
    return messages.pack(_KIND, array, context, device=place, dtype=tensor.dtype.name)


def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the tensor, on a GPU if it was on one.

    Raises `CorruptFrameError` if the header or the frames are not those that were sent;
    `ModuleNotFoundError` if there is no TensorFlow here; `WithoutGpuError` if the tensor was on a
    GPU, there is none here, and no tensor on the CPU is wanted instead.
    """
    device.require("tensorflow", "a TensorFlow tensor")
    if messages.is_pickled(header):
        return messages.unpickle(_KIND, header, frames)
    import tensorflow

    array, about = messages.unpack(_KIND, header, frames)
    place = "CPU:0"
    if about.get("device") == "gpu":
        if tensorflow.config.list_logical_devices("GPU"):
            place = "GPU:0"
        else:
            why, instead = "TensorFlow finds no GPU", "a tensor on the CPU"
            device.allow_host("TensorFlow tensor of a GPU", why, instead)
    with tensorflow.device(place):
        return tensorflow.constant(array, about.get("dtype"))


def _is_on_gpu(tensor: Any) -> bool:
    return "device:GPU" in tensor.device


def register() -> None:
    """Register TensorFlow's tensors, which distributed pickles and dask does not size."""
    import tensorflow

    replace(tensorflow.Tensor, serialize, deserialize)
    sizeof.register(tensorflow.Tensor, _nbytes)


def _nbytes(tensor: Any) -> int:
    # Of those without a value the shape may not be known.
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)
