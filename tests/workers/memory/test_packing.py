"""Values as frames: what is copied, what is compressed, and what comes back."""

from __future__ import annotations

import tracemalloc
from pickle import PickleBuffer
from typing import Any

import lz4.block
import numpy as np
import pytest
from distributed.protocol import dask_deserialize, dask_serialize
from hypothesis import given
from hypothesis import strategies as st

from gpusched.workers.memory import packing
from gpusched.workers.memory.packing import pack, unpack

MIB = 1 << 20


def peak_of(function: Any, *args: Any) -> tuple[Any, int]:
    """Return a result, and the most bytes that were allocated on the way."""
    tracemalloc.start()
    try:
        result = function(*args)
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_large_arrays_are_not_copied(compression: str | None) -> None:
    array = np.random.default_rng(0).random(4 * MIB)
    (header, frames), peak = peak_of(pack, array, compression)
    assert peak < MIB
    assert np.shares_memory(np.frombuffer(frames[0], "u1"), array)
    writable = [bytearray(frame) for frame in frames]
    found, peak = peak_of(unpack, header, writable)
    assert peak < MIB
    np.testing.assert_array_equal(found, array)


def test_compressing_takes_little_memory_and_expanding_little_more_than_the_array() -> None:
    array = np.repeat(np.random.default_rng(0).random(MIB // 2), 16)
    (header, frames), peak = peak_of(pack, array, "lz4")
    size = sum(len(frame) for frame in frames)
    assert size < array.nbytes / 5
    assert peak < size + 2 * packing._PIECE
    found, peak = peak_of(unpack, header, frames)
    assert peak < array.nbytes + 4 * packing._PIECE
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable


def test_array_that_is_only_half_compressible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PIECE", 40_000)
    array = np.concatenate([np.zeros(20_001), np.random.default_rng(0).random(20_001)])
    header, frames = pack(array, "lz4")
    assert sum(len(memoryview(frame)) for frame in frames) < array.nbytes * 0.7
    np.testing.assert_array_equal(unpack(header, frames), array)


@given(
    st.recursive(
        st.none()
        | st.integers()
        | st.text()
        | st.binary(max_size=100)
        | st.floats(allow_nan=False),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values) | st.tuples(values),
        max_leaves=10,
    )
)
def test_values_come_back(value: object) -> None:
    found = unpack(*pack(value, "lz4"))
    assert found == value
    assert type(found) is type(value)


class Wrapped:
    """Hands pickle the memory of an array in Fortran's order, as it is."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Wrapped, (PickleBuffer(self.data),)


@pytest.mark.parametrize("order", ["C", "F"])
def test_buffers_in_any_order_of_axes(order: Any) -> None:
    array = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
    found = unpack(*pack(Wrapped(array), None))
    assert bytes(found.data) == array.tobytes(order)


class Coded:
    """An object whose serializer tells how its frames are compressed."""

    def __init__(self, text: bytes, compression: Any) -> None:
        self.text, self.compression = text, compression


@dask_serialize.register(Coded)
def dump_coded(coded: Coded) -> tuple[dict[str, Any], list[bytes]]:
    frame = lz4.block.compress(coded.text) if coded.compression else coded.text
    return {"asked": coded.compression}, [frame]


@dask_deserialize.register(Coded)
def load_coded(header: dict[str, Any], frames: list[Any]) -> Coded:
    return Coded(bytes(frames[0]), header["asked"])


@pytest.mark.parametrize("compression", ["lz4", False, None])
def test_serializer_that_compresses_itself(
    monkeypatch: pytest.MonkeyPatch, compression: Any
) -> None:
    dumps = packing.serialize

    def telling(value: object, *args: Any, **kwargs: Any) -> Any:
        # Such serializers are families of their own, as distributed's for device memory are.
        header, frames = dumps(value, *args, **kwargs)
        return {**header, "compression": [compression]}, frames

    monkeypatch.setattr(packing, "serialize", telling)
    text = b"x" * 100_000
    header, frames = pack(Coded(text, compression), "lz4")
    assert (len(frames[0]) == len(text)) == (compression is False)
    found = unpack(header, frames)
    assert found.text == text


def test_message_tells_the_reason_but_not_the_value() -> None:
    with pytest.raises(TypeError) as caught:
        pack({"secret": "x" * 10_000, "function": (number for number in range(3))}, None)
    assert str(caught.value) == "dict: TypeError: cannot pickle 'generator' object"
