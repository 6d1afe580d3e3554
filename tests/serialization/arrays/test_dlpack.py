"""Arrays of libraries that have no file of their own."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from distributed.protocol.serialize import deserialize, serialize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.libraries import standard
from tests.serialization.arrays.sending import nbytes_sent, sent

DTYPES = ["?", "i1", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"]


def reader(value: Any) -> str | None:
    """Return which file of ours a value is sent by."""
    header, _ = serialize(value, on_error="raise")
    return (header.get("sub-header") or {}).get("as")


@given(
    hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
    st.sampled_from([slice(None), slice(None, None, -1), slice(None, None, 2)]),
)
def test_arrays_with_dlpack_come_back(values: np.ndarray, part: slice) -> None:
    array = standard.Array(values[part] if values.ndim else values)
    assert reader(array) == "dlpack"
    found = sent(array)
    assert type(found) is standard.Array
    assert (found.values.dtype, found.shape) == (array.values.dtype, array.shape)
    assert found.values.tobytes() == array.values.tobytes()


def test_broadcast_is_sent_once() -> None:
    values = np.lib.stride_tricks.as_strided(np.arange(3.0), (1 << 30, 3), (0, 8))
    assert nbytes_sent(standard.Array(values)) < 2000
    assert sent(standard.Array(values)).values.strides == (0, 8)


@pytest.mark.parametrize("kind", [standard.Pickled, standard.Lost])
def test_arrays_that_are_better_pickled_are(kind: Any) -> None:
    array = kind(np.arange(3))
    assert reader(array) is None
    assert type(sent(array)) is kind


def test_what_bytes_do_not_tell_is_not_lost() -> None:
    array = standard.Array(np.arange(3), unit="m")
    assert reader(array) is None
    assert sent(array).unit == "m"


def test_arrays_that_lend_nothing_are_pickled() -> None:
    assert sent(standard.Refusing(np.arange(3))).values.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("module", "expected"), [("elsewhere", "dlpack"), ("__main__", None)])
def test_arrays_that_name_no_namespace_are_their_packages(
    module: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(standard.Array, "__array_namespace__")
    monkeypatch.setattr(standard.Array, "__module__", module)
    monkeypatch.setitem(sys.modules, "elsewhere", standard)
    header, _ = serialize(standard.Array(np.arange(3)), ["dask", "error"])
    assert header.get("sub-header", {}).get("as") == expected


def test_library_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    header, frames = serialize(standard.Array(np.arange(3)))
    monkeypatch.setitem(sys.modules, standard.__name__, None)
    with pytest.raises((ModuleNotFoundError, ValueError), match=r"standard"):
        deserialize(header, frames)


def test_damage_is_told() -> None:
    header, frames = serialize(standard.Array(np.arange(100)))
    frames = [bytearray(frame) for frame in frames]
    frames[0][9] ^= 4
    with pytest.raises(CorruptFrameError, match="checksum"):
        deserialize(header, frames)
