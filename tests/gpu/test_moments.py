"""Variances on a GPU: one kernel reads each chunk, and one launch joins their moments."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk, reductions

import gpusched
from gpusched.graph.functions.moments import moment_agg, moment_chunk, moment_combine
from tests import emulated_gpu

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

RANDOM = np.random.default_rng(5)


def exact(numbers: np.ndarray, ddof: int = 0) -> float:
    """Return the variance of numbers."""
    found = [Fraction(float(each)) for each in numbers]
    mean = sum(found) / len(found)
    return float(sum((each - mean) ** 2 for each in found) / (len(found) - ddof))


def chunks(parts: list[np.ndarray], **options: Any) -> list[dict[str, Any]]:
    """Return what is kept of chunks, in device memory."""
    found = [moment_chunk(p, dtype="f8", axis=(0,), keepdims=True, **options) for p in parts]
    return [{name: cupy.asarray(value) for name, value in each.items()} for each in found]


@pytest.mark.parametrize("axis", [0, 1])
def test_each_chunk_is_read_by_one_kernel(axis: int) -> None:
    x = (1e8 + RANDOM.normal(size=(60, 40))).astype("f8")
    chunked = da.from_array(cupy.asarray(x), chunks=(30, 20), asarray=False)
    settings = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.compile": "wait"}
    with dask.config.set(settings), gpusched.enable():
        gpusched.reset_statistics()
        found = chunked.var(axis=axis, ddof=1).compute(scheduler="sync")
    assert gpusched.statistics().launches == 4
    expected = [exact(row, 1) for row in (x if axis else x.T)]
    np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=1e-13)


@pytest.mark.parametrize("count", [1, 4, 19])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_chunks_are_joined_as_exactly_as_on_the_host(count: int, dtype: str) -> None:
    parts = np.array_split(1e8 + RANDOM.normal(size=(57, 5)), count)
    whole = np.concatenate(parts)
    expected = [exact(column, 1) for column in whole.T]
    kept = chunks(parts)
    for pairs in (kept, [moment_combine(kept, axis=(0,))]):
        found = moment_agg(pairs, ddof=1, dtype=dtype, axis=(0,), keepdims=False)
        assert (found.dtype, found.shape) == (dtype, (5,))
        error = {"f8": 1e-13, "f4": 1e-6}[dtype]
        np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=error)


@pytest.mark.skipif(not emulated_gpu.requested(), reason="a driver that counts its launches")
def test_one_launch_joins_them_and_nothing_waits_for_it() -> None:
    from tests.emulated_gpu import emulator

    kept = chunks(np.split(RANDOM.normal(size=(40, 6)), 4))
    moment_agg(kept, axis=(0,), keepdims=False)  # CuPy compiles it.
    cupy.cuda.runtime.deviceSynchronize()
    before, waiting = emulator.launches(), emulator.pending()
    found = moment_agg(kept, axis=(0,), keepdims=False)
    assert (emulator.launches() - before, emulator.pending() - waiting) == (0, 1)
    cupy.cuda.runtime.deviceSynchronize()
    assert emulator.launches() - before == 1
    assert found.shape == (6,)


def test_columns_without_numbers_or_with_infinite_ones_are_as_dask_has_them() -> None:
    x = RANDOM.normal(size=(40, 7))
    x[:, 0] = np.nan
    x[:10, 1] = np.nan
    x[10:, 2] = np.nan
    x[1:, 3] = np.nan
    x[17, 4] = np.inf
    x[:, 5] *= 1e200
    skip = {"sum": chunk.nansum, "numel": reductions.nannumel}
    for ddof in (0, 1):
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            chunked = da.from_array(x, chunks=(10, 7))
            with gpusched.disable():
                expected = da.nanvar(chunked, axis=0, ddof=ddof).compute(scheduler="sync")
            kept = chunks(np.split(x, 4), **skip)
        found = moment_agg(kept, ddof=ddof, axis=(0,), keepdims=False)
        np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=1e-12)


def test_what_was_constant_does_not_deviate() -> None:
    kept = chunks([np.full((n, 3), 0.1) for n in (7, 11, 13)])
    found = moment_agg(kept, axis=(0,), keepdims=True)
    assert not cupy.asnumpy(found).any()
