"""NumPy's masked arrays."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from distributed.protocol.numpy import serialize_numpy_maskedarray
from distributed.protocol.serialize import deserialize, serialize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.serialization.frames import CorruptFrameError
from tests.serialization.arrays.sending import sent


def check_same(found: Any, expected: np.ma.MaskedArray) -> None:
    """Check data, mask, fill value, and whether the mask is fixed."""
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert found.data.tobytes() == expected.data.tobytes()
    assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
    assert (found.mask is np.ma.nomask) == (expected.mask is np.ma.nomask)
    assert found.hardmask == expected.hardmask
    assert np.array(found.fill_value).tobytes() == np.array(expected.fill_value).tobytes()


@given(
    hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
    st.booleans(),
    st.booleans(),
)
def test_masked_arrays_come_back(values: np.ndarray, hard: bool, masked: bool) -> None:
    mask = np.arange(values.size).reshape(values.shape) % 2 == 0 if masked else np.ma.nomask
    array = np.ma.MaskedArray(values, mask, hard_mask=hard)
    check_same(sent(array), array)


def test_structured_masks_come_back() -> None:
    array = np.ma.MaskedArray(
        [(1, 2.0), (3, 4.0)], mask=[(True, False), (False, True)], dtype=[("a", "i4"), ("b", "f8")]
    )
    check_same(sent(array), array)


def test_objects_are_pickled() -> None:
    array = np.ma.MaskedArray(np.array(["a", None], dtype=object), mask=[True, False])
    found = sent(array)
    assert found.data.tolist() == ["a", None]
    assert found.mask.tolist() == [True, False]


def test_the_masked_constant_stays_itself() -> None:
    assert sent(np.ma.masked) is np.ma.masked


def test_what_distributed_itself_has_sent_is_read() -> None:
    array = np.ma.MaskedArray([1, 2], [True, False], fill_value=7)
    told, frames = serialize_numpy_maskedarray(array)
    kind = pickle.dumps(np.ma.MaskedArray)
    header = {"sub-header": told, "type-serialized": kind, "serializer": "dask"}
    check_same(deserialize(header, frames), array)


def test_mask_of_another_array_is_refused() -> None:
    header, frames = serialize(np.ma.MaskedArray([1, 2], [True, False]))
    other, _ = serialize(np.ma.MaskedArray([1, 2, 3], [True, False, True]))
    parts = [*header["sub-header"]["parts"][:-1], other["sub-header"]["parts"][-1]]
    with pytest.raises(CorruptFrameError):
        deserialize({**header, "sub-header": {**header["sub-header"], "parts": parts}}, frames)
