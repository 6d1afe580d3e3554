"""TensorFlow's tensors."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.protocol.serialize import deserialize, serialize

from gpusched.serialization.arrays import tensorflow as file
from gpusched.serialization.arrays.device import WithoutGpuError
from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import frames_of, received, sent

tf = pytest.importorskip(
    "tensorflow", reason="TensorFlow is not installed, and too big for the extras"
)

NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128", "int4", "qint8", "quint8",
    "qint32",
]  # fmt: skip


def make(name: str, shape: tuple[int, ...]) -> Any:
    if name.startswith("q"):
        return tf.zeros(shape, name)
    return tf.cast(tf.reshape(tf.range(int(np.prod(shape))), shape), name)


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_comes_back_as_it_was(name: str, shape: tuple[int, ...]) -> None:
    tensor = make(name, shape)
    assert serialize(tensor)[0]["sub-header"]["as"] == "tensorflow"
    found = sent(tensor)
    assert type(found) is type(tensor)
    assert (found.dtype, found.shape, found.device) == (tensor.dtype, tensor.shape, tensor.device)
    assert found.numpy().tobytes() == tensor.numpy().tobytes()


def test_texts_and_other_values_come_back() -> None:
    assert sent(tf.constant(["a", "bb"])).numpy().tolist() == [b"a", b"bb"]
    assert sent(tf.Variable([1.0, 2.0])).numpy().tolist() == [1, 2]
    assert sent(tf.ragged.constant([[1], [2, 3]])).to_list() == [[1], [2, 3]]


def test_within_a_function_there_is_nothing_to_send() -> None:
    @tf.function
    def send(tensor: Any) -> Any:
        with pytest.raises(TypeError, match="serialize"):
            serialize(tensor, on_error="raise")
        return tensor

    send(tf.zeros(2))


def test_bytes_are_counted() -> None:
    assert sizeof(tf.zeros((1000,))) == 4000


def test_damage_is_told() -> None:
    header, frames = serialize(tf.range(100))
    frames = [bytearray(frame) for frame in frames]
    frames[0][7] ^= 1
    with pytest.raises(CorruptFrameError, match="checksum"):
        deserialize(header, frames)


def test_gpu_tensor_without_a_gpu_is_an_error_unless_host_tensors_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("there is a GPU")
    monkeypatch.setattr(file, "_is_on_gpu", lambda tensor: True)
    frames = frames_of(tf.range(3))
    with pytest.raises(WithoutGpuError, match="TensorFlow finds no GPU"):
        received(frames)
    with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
        assert received(frames).numpy().tolist() == [0, 1, 2]
