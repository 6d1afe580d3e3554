"""numba's arrays on the GPU; or emulated, as `test_emulated` runs this."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.protocol.serialize import deserialize, serialize

from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import sent

cuda = pytest.importorskip("numba.cuda", reason="numba.cuda is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda.is_available(), reason="numba finds no GPU"),
]


def on_device(value: Any) -> Any:
    """Return what arrives without leaving the GPU."""
    header, frames = serialize(value, ["cuda"], "raise")
    assert all(hasattr(frame, "__cuda_array_interface__") for frame in frames)
    return deserialize(header, frames)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(12, dtype="f4").reshape(3, 4),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3)),
        np.array(3 + 4j),
        np.arange(4) > 1,
        np.arange(3, dtype="f2"),
    ],
)
@pytest.mark.parametrize("way", [sent, on_device])
def test_arrays_come_back(way: Any, values: np.ndarray) -> None:
    array = cuda.to_device(values)
    assert serialize(array)[0]["sub-header"]["as"] == "numba_cuda"
    found = way(array)
    assert type(found) is type(array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert not values.size or tuple(found.strides) == tuple(array.strides)
    assert found.copy_to_host().tobytes() == array.copy_to_host().tobytes()


def test_gaps_are_not_sent() -> None:
    whole = cuda.to_device(np.arange(12, dtype="f4").reshape(3, 4))
    data = whole.gpu_data
    array = cuda.devicearray.DeviceNDArray((3, 2), (16, 8), np.dtype("f4"), gpu_data=data)
    found = sent(array)
    assert tuple(found.strides) == (8, 4)
    assert found.copy_to_host().tolist() == [[0, 2], [4, 6], [8, 10]]


def test_damage_is_told() -> None:
    header, frames = serialize(cuda.to_device(np.arange(3)))
    frames = [bytearray(frame) for frame in frames]
    frames[0][7] ^= 1
    with pytest.raises(CorruptFrameError, match="checksum"):
        deserialize(header, frames)
