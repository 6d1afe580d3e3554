"""JAX's arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.protocol.serialize import deserialize, serialize
from hypothesis import given
from hypothesis.extra import numpy as hnp

from gpusched.serialization.arrays import jax as file
from gpusched.serialization.arrays.device import WithoutGpuError
from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import frames_of, received, sent
from tests.tiers import in_host_memory

jax = pytest.importorskip("jax", reason="JAX comes with the extra models-test")
on_the_host = in_host_memory(jax.default_backend() == "gpu")

SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]
NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", *SMALL,
]  # fmt: skip


def check_same(found: Any, expected: Any) -> None:
    """Check type, dtype, shape, values to the bit, and whether the type is weak."""
    assert type(found) is type(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.weak_type == expected.weak_type
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def array_of(name: str, values: Any) -> Any:
    with file._wide():
        return jax.numpy.asarray(values).astype(name)


@pytest.mark.parametrize("name", NAMES)
@given(values=hnp.arrays("i1", hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
def test_every_array_comes_back_as_it_was(name: str, values: np.ndarray) -> None:
    array = array_of(name, values)
    check_same(sent(array), array)


def test_double_precision_stays_where_it_is_switched_off() -> None:
    array = array_of("float64", [1e300])
    assert not jax.config.jax_enable_x64
    assert sent(array).dtype == "float64"
    assert not jax.config.jax_enable_x64


def test_weak_types_stay_weak() -> None:
    array = jax.numpy.asarray(1.0)
    assert array.weak_type
    check_same(sent(array), array)
    assert (sent(array) + jax.numpy.ones(2, "float16")).dtype == "float16"


def test_keys_of_random_numbers_come_back() -> None:
    key = jax.random.key(3)
    assert jax.random.key_data(sent(key)).tolist() == jax.random.key_data(key).tolist()


@on_the_host
def test_values_are_lent_not_copied_for_sending() -> None:
    array = jax.numpy.arange(1000.0)
    _, (frame,) = serialize(array)
    assert np.asarray(frame).ctypes.data == array.unsafe_buffer_pointer()


def test_under_jit_there_is_nothing_to_send() -> None:
    @jax.jit
    def send(array: Any) -> Any:
        return serialize(array, on_error="raise")

    with pytest.raises(TypeError, match="serialize"):
        send(jax.numpy.ones(3))


def test_bytes_are_counted() -> None:
    assert sizeof(jax.numpy.zeros(1000, "float32")) == 4000


def test_damage_is_told() -> None:
    header, frames = serialize(jax.numpy.arange(100.0))
    frames = [bytearray(frame) for frame in frames]
    frames[0][7] ^= 1
    with pytest.raises(CorruptFrameError, match="checksum"):
        deserialize(header, frames)


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU")
def test_gpu_array_without_a_gpu_is_an_error_unless_host_arrays_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array = jax.numpy.arange(3)
    monkeypatch.setattr(file, "_is_on_gpu", lambda array: True)
    frames = frames_of(array)
    with pytest.raises(WithoutGpuError, match=r"JAX finds no GPU.*without-gpu to host"):
        received(frames)
    with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
        check_same(received(frames), array)


def lent(region: Any, copy: bool) -> Any:
    """Return an array with a copy of host memory, as JAX makes them of a GPU's."""
    told = region.__cuda_array_interface__
    kind, size = np.dtype(told["typestr"]), region.nbytes
    memory = (ctypes.c_char * size).from_address(told["data"][0])
    return jax.numpy.asarray(np.frombuffer(bytes(memory), kind).reshape(told["shape"]))


@on_the_host
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("int4")])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_frames_of_a_gpu_hold_the_same_where_a_gpu_is_emulated(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of(name, np.arange(6)[: np.prod(shape, dtype=int)].reshape(shape))
    monkeypatch.setattr(file, "_is_on_gpu", lambda array: True)
    header, frames = serialize(array, ["cuda"], "raise")
    assert sum(frame.nbytes for frame in frames) == array.nbytes
    monkeypatch.setattr(jax.numpy, "array", lent)
    check_same(deserialize(header, frames), array)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_less_than_a_byte_goes_through_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_is_on_gpu", lambda array: True)
    header, _ = serialize(array_of(name, np.arange(4)), ["cuda", "dask"], "raise")
    assert header["serializer"] == "dask"


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", ["cuda", "dask"])
def test_gpu_array_comes_back_on_the_gpu(name: str, family: str) -> None:
    array = array_of(name, np.arange(6).reshape(2, 3))
    header, frames = serialize(array, [family, "dask"], "raise")
    found = deserialize(header, frames)
    check_same(found, array)
    assert found.devices() == array.devices()
