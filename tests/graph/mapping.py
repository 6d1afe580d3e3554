"""What users' functions make of chunks, fused and by plain dask."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from gpusched.graph import disable
from gpusched.store.statistics import Statistics, reset_statistics, statistics


def mapped(function: Callable[..., Any], *chunks: np.ndarray) -> Any:
    """Return what a function makes of some chunks, one after the other; an error's type for one."""
    x = da.from_array(np.concatenate(chunks), chunks=(len(chunks[0]), *chunks[0].shape[1:]))
    with warnings.catch_warnings(action="ignore"):
        try:
            return x.map_blocks(function, meta=np.empty((0,) * x.ndim)).compute(scheduler="sync")
        except (ArithmeticError, LookupError, AssertionError, TypeError, ValueError) as error:
            return type(error)


def compare(function: Callable[..., Any], *chunks: np.ndarray) -> Statistics:
    """Compare all bits with plain dask, and return the counts of the fused run."""
    with disable():
        expected = mapped(function, *chunks)
    reset_statistics()
    found = mapped(function, *chunks)
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    else:
        assert found is expected
    return statistics()
