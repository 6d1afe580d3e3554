"""Elements that are equal to some of a few values."""

from __future__ import annotations

import random
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.store.statistics import reset_statistics, statistics
from tests.record.recording import record
from tests.tiers import every

DTYPES = ["u1", "i2", "i8", "?", "f4", "f8", "u8"]


@pytest.mark.parametrize("seed", every(4, range(16)))
def test_any_values_are_found_as_numpy_finds_them(seed: int) -> None:
    for k in range(30):
        draw = random.Random(f"{seed}-{k}")
        rng = np.random.default_rng(draw.randrange(1 << 30))
        x = rng.integers(-3, 9, (5, 4)).astype(draw.choice(DTYPES))
        few = draw.choice([(), (1,), (3,), (2, 2), (17,)])
        values: Any = rng.integers(-3, 9, few).astype(draw.choice(DTYPES))
        for array in (x, values):
            if array.dtype.kind == "f" and array.ndim:
                array.flat[0] = draw.choice([np.nan, -0.0, np.inf, 1.5])
        given = draw.choice([values, values.tolist(), [1, 2.5], [3], {1, 2}, []])
        options = draw.choice([{}, {"invert": True}, {"assume_unique": True}, {"kind": "sort"}])

        def function(x: Any, given: Any = given, options: Any = options) -> Any:
            whole = np.isin(x * x, given, **options), np.isin(x, x[0, :2])
            return *whole, np.isin(x.max(), given, **options), np.isin(x[0, 0], x[0])

        for found, expected in zip(record(function, x, backend="python").result, function(x),
                                   strict=True):  # fmt: skip
            assert type(found) is type(expected) and found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected, err_msg=f"{k} {given} {options}")


@pytest.mark.usefixtures("everything_fused", "no_compiler")
def test_cloud_masks_are_kernels() -> None:
    classes = np.arange(60, dtype="u1").reshape(6, 10) % 11
    x = da.from_array(classes, chunks=(3, 10))

    def program() -> Any:
        return da.where(da.isin(x, [3, 8, 9]), np.nan, x * 2.0)

    reset_statistics()
    found = program().compute(scheduler="sync")
    counts = statistics()
    # dask looks whether a chunk of the values has it, and then whether any has.
    assert counts.launches == counts.fused_tasks == counts.tasks == 4
    with gpusched.disable():
        np.testing.assert_array_equal(found, program().compute())
