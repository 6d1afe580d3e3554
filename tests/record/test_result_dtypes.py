"""``dtype=`` of ufuncs: what NumPy computes in another dtype, kernels compute in it, too."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.record.recording import check, record

UFUNCS = [np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.remainder,
          np.maximum, np.less, np.logical_or, np.bitwise_and, np.left_shift, np.negative, np.square,
          np.sqrt, np.absolute, np.sign, np.isnan, np.modf, np.ldexp, np.copysign]  # fmt: skip
DTYPES = ["?", "i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8"]
COMPLEX = {np.add, np.subtract, np.negative}
NUMBERS: list[Any] = [2, -1, 300, 2.5, 1e39, True, 1j, np.int64(7), np.float64(0.1), np.uint8(3)]
VALUES = [0, 1, -1, 2, 7, 63, 100, -128, 0.5, -0.0, 3.7, 1e6, 1e30, 1e300, -1e300,
          np.nan, np.inf, -np.inf]  # fmt: skip


def chunk(dtype: str, offset: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.roll(np.array(VALUES), offset).astype(dtype).reshape(3, 6)


@example(np.add, ["i8", "i8"], "f4", None)
@example(np.multiply, ["f8", "f8"], "f4", None)
@example(np.add, ["?", "?"], "i8", None)
@example(np.add, ["c16", "c16"], "c8", None)
@example(np.less, ["f8", "i8"], "?", None)
@example(np.less, ["f8", "i8"], "f8", None)
@example(np.add, ["i1", "i1"], "i2", 300)
@example(np.add, ["i1", "i1"], "i1", 300)
@example(np.add, ["f8", "f8"], ">f4", None)
@example(np.add, ["f8", "f8"], "nothing", None)
@given(
    st.sampled_from(UFUNCS),
    st.lists(st.sampled_from([*DTYPES, "c8", "c16"]), min_size=2, max_size=2),
    st.sampled_from([*DTYPES, "c8", "c16", "M8[s]"]),
    st.none() | st.sampled_from(NUMBERS),
)
def test_results_are_numpys(ufunc: Any, dtypes: list[str], result: str, number: Any) -> None:
    if ufunc not in COMPLEX and ("c" in result + "".join(dtypes) or type(number) is complex):
        return
    arrays = [chunk(dtype, k) for k, dtype in enumerate(dtypes[: ufunc.nin])]
    if number is not None and ufunc.nin == 2:

        def call(x: Any, _: Any) -> Any:
            return ufunc(x, number, dtype=result)

    else:

        def call(*operands: Any) -> Any:
            return ufunc(*operands, dtype=result)

    for errors in ("ignore", "warn"):
        try:
            with np.errstate(all="ignore"):
                call(*arrays)
        except (TypeError, OverflowError) as error:
            with pytest.raises(type(error)), np.errstate(all="ignore"):
                record(call, *arrays, backend="python")
        else:
            check(call, *arrays, backend="python", errors=errors)


def test_sums_of_several_are_one_kernel() -> None:
    def total(*chunks: Any) -> Any:
        return reduce(partial(np.add, dtype="f4"), chunks)

    arrays = [np.linspace(0, k + 1, 12).reshape(3, 4) for k in range(5)]
    assert len(check(total, *arrays).launches) == 1


def test_no_dtype_is_none() -> None:
    x = np.arange(3, dtype="i4")
    found = check(lambda a: np.add(a, a, dtype=None), x)
    assert found.result.dtype == x.dtype and len(found.launches) == 1


@pytest.mark.parametrize("errors", ["ignore", "warn"])
def test_conversion_is_within_the_call(errors: str) -> None:
    """What becomes of the operands is rounded before anything is computed of it."""
    x, y = np.array([1.0, 16777217.0]), np.array([2**-24, 1.0])
    found = check(lambda a, b: np.add(a, b, dtype="f4"), x, y, errors=errors)
    assert found.result.tolist() == [1.0, 16777216.0] and len(found.launches) == 1
