"""Damaged, forged and exploding messages and files are refused; `fuzz` does so for minutes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpusched.serialization import sealed, strided
from gpusched.serialization.frames import CorruptFrameError

from .damage import SLOW, arrays, check


@given(st.binary(max_size=300))
@example(b"")
def test_damage_is_refused_or_changes_nothing(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize("context", [None, SLOW], ids=["plain", "compressed"])
def test_arrays_to_be_damaged_survive_without(context: Any) -> None:
    for array in arrays():
        found, _ = strided.unpack(*strided.pack(array, context))
        np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize(
    "claims",
    [
        {"nbytes": 1 << 43, "shape": [1 << 40]},
        {"shape": [1 << 40]},
        {"shape": [1 << 40], "strides": [0], "writeable": True},
        {"nbytes": 1 << 43, "shape": [1 << 40], "codec": ["blosc-lz4", 4 << 20]},
        {"dtype": {"V": 1 << 40}},
    ],
    ids=["length", "shape", "repeats", "codec", "item"],
)
def test_claims_of_terabytes_take_no_memory(claims: dict[str, Any]) -> None:
    header, parts = strided.pack(np.arange(1000))
    about = sealed.unseal(header["gpusched"], parts)
    del about["lengths"]
    sealed_again = sealed.seal({**about, **claims}, parts)
    tracemalloc.start()
    try:
        strided.unpack({"gpusched": sealed_again}, [bytes(parts[0])])
    except CorruptFrameError:
        pass
    else:
        assert "writeable" in claims
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20


def test_message_names_what_is_wrong() -> None:
    header, parts = strided.pack(np.arange(3))
    with pytest.raises(CorruptFrameError, match=r"checksum: expected [0-9a-f]{16}, found"):
        strided.unpack(header, [b"x" * 24])
    with pytest.raises(CorruptFrameError, match="seal: expected some hundred bytes, found None"):
        strided.unpack({}, parts)
