"""NumPy's arrays: as they were, in every dtype and order."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed.protocol.numpy import serialize_numpy_ndarray
from distributed.protocol.serialize import deserialize, serialize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.serialization.frames import CorruptFrameError
from gpusched.serialization.sealed import seal, unseal
from tests.serialization.arrays.sending import CONTEXT, frames_of, nbytes_sent, received, sent


def check_same(found: Any, expected: np.ndarray) -> None:
    """Check type, dtype, shape, values to the bit, order and whether it may be written to."""
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert found.dtype.str == expected.dtype.str
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()
    assert found.flags.writeable == expected.flags.writeable
    for axis, size in enumerate(expected.shape):
        if size > 1 and expected.size:
            assert np.sign(found.strides[axis]) == np.sign(expected.strides[axis])


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(endianness="?", min_len=1),
    hnp.nested_dtypes(),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Draw views of every kind: reversed, with gaps, transposed, broadcast, readonly."""
    array = draw(hnp.arrays(DTYPES, SHAPES))
    index = draw(hnp.basic_indices(array.shape, allow_ellipsis=False))
    array = array[(*(index if isinstance(index, tuple) else (index,)), ...)]
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()) and array.ndim < 6:
        array = np.broadcast_to(array, (draw(st.integers(0, 3)), *array.shape))
    if draw(st.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


@given(arrays())
def test_every_array_comes_back_as_it_was(array: np.ndarray) -> None:
    check_same(sent(array), array)


@given(arrays())
def test_what_distributed_itself_has_sent_is_read(array: np.ndarray) -> None:
    told, frames = serialize_numpy_ndarray(array)
    header = {"sub-header": told, "type-serialized": pickle.dumps(np.ndarray), "serializer": "dask"}
    found = deserialize(header, [bytearray(frame) for frame in frames])
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


@given(arrays(), st.data())
def test_damage_is_told(array: np.ndarray, data: st.DataObject) -> None:
    header, frames = serialize(array)
    frames = [bytearray(frame) for frame in frames]
    told = header["sub-header"]
    parts = [bytearray(told["gpusched"]), *(frame for frame in frames if frame)]
    part = parts[data.draw(st.integers(0, len(parts) - 1))]
    part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = {**header, "sub-header": {**told, "gpusched": bytes(parts[0])}}
    with pytest.raises(CorruptFrameError):
        deserialize(damaged, frames)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(7)[::-1],
        np.zeros((4, 6), order="F"),
        np.zeros((4, 6))[::2, ::-3],
        np.zeros((3, 4, 5)).transpose(1, 2, 0),
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.zeros((2, 4), order="F")[:, ::-1],
    ],
)
def test_order_in_memory_is_kept(array: np.ndarray) -> None:
    found = sent(array)
    assert np.argsort(np.abs(found.strides)).tolist() == np.argsort(np.abs(array.strides)).tolist()
    assert np.sign(found.strides).tolist() == np.sign(array.strides).tolist()


def test_broadcast_is_sent_once() -> None:
    array = np.broadcast_to(np.arange(1000.0), (1000, 1000))
    assert nbytes_sent(array) < 10_000
    assert sent(array).strides == (0, 8)


def test_broadcast_that_can_be_written_to_is_not_expanded_from_frames_that_cannot() -> None:
    array = np.lib.stride_tricks.as_strided(np.arange(3), (1 << 40, 3), (0, 8))
    found = received([bytes(frame) for frame in frames_of(array)])
    assert found.strides == (0, 8)
    assert found.flags.writeable


def test_gaps_are_not_sent() -> None:
    assert nbytes_sent(np.zeros((1000, 1000))[:, ::100]) < 100_000


def test_dense_arrays_are_not_copied() -> None:
    array = np.arange(1000.0).reshape(10, 100).T[:, ::-1]
    _, (frame,) = serialize(array)
    assert np.shares_memory(np.asarray(frame), array)
    assert np.shares_memory(deserialize(*serialize(array)), array)


def test_large_arrays_are_split_and_joined() -> None:
    array = np.arange(17 << 20, dtype=np.float64).reshape(-1, 16).T
    frames = frames_of(array)
    assert len(frames) > 4
    check_same(received(frames), array)


@pytest.mark.parametrize("compression", ["lz4", "zlib"])
def test_arrays_pass_distributeds_own_compression(compression: str) -> None:
    array = np.zeros((3, 100_000))
    with dask.config.set({"gpusched.serialization.compression": False}):
        frames = frames_of(array, compression=compression)
        assert sum(map(len, frames)) < 50_000
        check_same(received(frames), array)


def test_arrays_that_are_compressed_here_are_left_alone_by_distributed() -> None:
    array = np.arange(1_000_000.0)
    with dask.config.set({"gpusched.serialization.compression": True}):
        header, frames = serialize(array, context=CONTEXT)
        assert set(header["compression"]) == {False}
        assert sum(memoryview(frame).nbytes for frame in frames) < array.nbytes / 2
        check_same(sent(array, compression="zlib"), array)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_small_floats_come_back(name: str) -> None:
    library = pytest.importorskip("ml_dtypes", reason="ml_dtypes comes with JAX")
    array = np.arange(6).astype(getattr(library, name)).reshape(2, 3).T
    check_same(sent(array), array)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", None, 3], dtype=object),
        np.array([("a", 1)], dtype=[("name", object), ("size", "i4")]),
        np.array(["short", "rather longer than that"], dtype=np.dtypes.StringDType()),
        np.zeros(3, np.dtype("f8", metadata={"unit": "m"})),
        np.zeros(3, "U0"),
        np.zeros(3, "V0"),
        np.zeros((2, 3), "f8").view(np.recarray),
    ],
)
def test_arrays_without_plain_bytes_are_pickled(array: np.ndarray) -> None:
    found = sent(array)
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    assert found.dtype.metadata == array.dtype.metadata
    assert found.tolist() == array.tolist()


class Measured(np.ndarray):
    """A subclass that knows more than its bytes."""

    unit = "?"

    def __reduce__(self) -> Any:
        return _measured, (np.asarray(self), self.unit)


def _measured(values: np.ndarray, unit: str) -> Measured:
    array = values.view(Measured)
    array.unit = unit
    return array


def test_subclasses_keep_what_they_know() -> None:
    assert sent(_measured(np.ones(3), "m")).unit == "m"


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_stay_matrices() -> None:
    check_same(sent(np.asmatrix(np.eye(2)).T), np.asmatrix(np.eye(2)).T)


def test_memory_maps_arrive_as_arrays(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "values", "f4", "w+", shape=(3, 4))
    mapped[:] = 5
    check_same(sent(mapped), np.full((3, 4), 5, "f4"))


def test_arrays_in_collections_come_back() -> None:
    value = {"a": [np.arange(3), (np.eye(2), "text")], "b": np.float32(2)}
    found = sent(value)
    check_same(found["a"][0], value["a"][0])
    check_same(found["a"][1][0], value["a"][1][0])
    assert found["b"] == 2


def test_a_header_that_claims_terabytes_is_refused() -> None:
    array = np.zeros(3)
    header, frames = serialize(array)
    sealed_ = header["sub-header"]["gpusched"]
    about = unseal(sealed_, frames)
    for change in ({"shape": [1 << 50]}, {"strides": [1 << 50]}, {"offset": -8}, {"nbytes": 99}):
        lie = seal({**about, **change}, frames)
        damaged = {**header, "sub-header": {**header["sub-header"], "gpusched": lie}}
        with pytest.raises(CorruptFrameError):
            deserialize(damaged, frames)


def test_reader_that_does_not_exist_is_told() -> None:
    header, frames = serialize(np.zeros(3))
    for name in ("os", "torch", None, ["numpy"]):
        damaged = {**header, "sub-header": {**header["sub-header"], "as": name}}
        with pytest.raises((CorruptFrameError, ModuleNotFoundError)):
            deserialize(damaged, frames)
