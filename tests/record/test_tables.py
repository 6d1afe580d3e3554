"""Tables of one axis that are indexed by arrays of several: part of a kernel, as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpusched.record.gathers import TABLE, checked
from tests.record.recording import check, record

RANDOM = np.random.default_rng(8)
CODES = RANDOM.integers(0, 5, (6, 40)).astype("u1")


def brightness(codes: Any, table: Any) -> Any:
    return table[codes] * 2 + 1


@pytest.mark.parametrize(("backend", "dtype", "places"), [
    ("cpu", "f4", "u1"), ("cpu", "i2", "i4"), ("cpu", "?", "i1"),
    *[(backend, dtype, places) for backend in ("python", "arrays")
      for dtype in ("f8", "f4", "i2", "u8", "?") for places in ("u1", "i1", "i4", "i8", "u4")],
])  # fmt: skip
def test_one_kernel(backend: str, dtype: str, places: str) -> None:
    table = RANDOM.integers(0, 2 if dtype == "?" else 90, 300).astype(dtype)
    codes = CODES.astype(places)
    codes = codes if places[0] == "u" else codes - places.count("i") * 3
    function = (lambda c, t: t[c] ^ True) if dtype == "?" else brightness
    found = check(function, codes, table, backend=backend)
    (launch,) = found.launches
    assert launch.bytes_read <= codes.nbytes + table.nbytes
    again = np.roll(codes, 1), table[::-1].copy()
    np.testing.assert_array_equal(found.run(*again), function(*again))


@given(st.data())
def test_shapes_orders_and_signs(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 9))
    dtype = data.draw(st.sampled_from(["i1", "u2", "i4", "u4", "i8", "u8"]))
    low = 0 if dtype[0] == "u" else -length
    shape = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
    codes = data.draw(hnp.arrays(dtype, shape, elements=st.integers(low, length - 1)))
    codes = codes.T if data.draw(st.booleans()) else codes
    table = np.arange(length * 3.0)[:: data.draw(st.sampled_from([3, -3, 1]))][:length]
    taken = data.draw(st.booleans())
    over = data.draw(st.sampled_from([None, 0, -1])) if codes.size else None

    def function(c: Any, t: Any) -> Any:
        found = np.take(t, c) if taken else t[c]
        return (found - 1.5) if over is None else (found - 1.5).sum(axis=over)

    check(function, codes, table, backend="python")


@pytest.mark.parametrize("beyond", [5, -6, 120, -128])
def test_places_beyond_it_raise_what_numpy_raises(beyond: int) -> None:
    codes = CODES.astype("i1")
    codes[3, 7] = beyond
    table = np.arange(5.0)
    with pytest.raises(IndexError) as expected:
        table[codes]
    with pytest.raises(IndexError) as raised:
        checked(codes, 5)
    assert str(raised.value) == str(expected.value)
    found = check(brightness, CODES.astype("i1"), table)
    with pytest.raises(IndexError):
        found.run(codes, table)


def test_all_that_their_dtype_can_be_are_not_checked() -> None:
    found = record(lambda c, t: t[c] + 1, CODES, np.arange(256.0))
    assert not any(getattr(step, "function", None) is checked for step in found.plan.steps)


@pytest.mark.parametrize("table", [
    np.arange(TABLE + 1.0), np.arange(5) + 1j, np.arange(5, dtype="f2"), np.arange(5).reshape(5, 1),
], ids=["long", "complex", "half", "two axes"])  # fmt: skip
def test_others_are_numpys(table: Any) -> None:
    check(brightness, CODES, table, backend="python")


def test_masks_are_no_places() -> None:
    check(lambda c, t: t[c[0] > 2] + 1, CODES[:, :5], np.arange(5.0), backend="python")
