"""Other libraries' arrays and functions around, and inside, dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched

Compute = Callable[[Callable[[], Any]], tuple[Any, int]]
MISSING = "comes with the extra interop-test"


def test_dask_image(random: np.random.Generator, launched: Compute) -> None:
    filters = pytest.importorskip("dask_image.ndfilters", reason=f"dask-image {MISSING}")
    from scipy import ndimage

    values = random.random((90, 70))
    x = da.from_array(values, chunks=40)
    found, launches = launched(
        lambda: (np.sqrt(filters.gaussian_filter(x * 2 + 1, 2.0)) + 1).compute()
    )
    np.testing.assert_allclose(found, np.sqrt(ndimage.gaussian_filter(values * 2 + 1, 2.0)) + 1)
    assert launches


def test_columns_of_dataframes(random: np.random.Generator, launched: Compute) -> None:
    dataframe = pytest.importorskip("dask.dataframe", reason=f"dask's dataframes {MISSING}")
    import pandas as pd

    table = pd.DataFrame({"a": random.random(100), "b": random.random(100)})
    lazy = dataframe.from_pandas(table, npartitions=4)

    @gpusched.kernel
    def norm(a: float, b: float) -> float:
        return (a * a + b * b) ** 0.5

    def with_norm(part: Any) -> Any:
        return part.assign(c=norm(part["a"].to_numpy(), part["b"].to_numpy()))

    found, _ = launched(lambda: lazy.map_partitions(with_norm).compute())
    np.testing.assert_allclose(found["c"], np.hypot(table.a, table.b))
    arrays = lazy.to_dask_array(lengths=True)
    sums, launches = launched(lambda: (arrays * 2 + 1).sum(axis=1).compute())
    np.testing.assert_allclose(sums, (table * 2 + 1).sum(axis=1))
    assert launches


def test_sparse_chunks_are_left_alone(launched: Compute) -> None:
    sparse = pytest.importorskip("sparse", reason=f"sparse {MISSING}")
    values = sparse.random((40, 40), density=0.1, random_state=0)
    x = da.from_array(values, chunks=20, asarray=False)
    found, launches = launched(lambda: np.sqrt(x * 2 + x).sum(axis=0).compute())
    assert isinstance(found, sparse.COO)
    np.testing.assert_allclose(found.todense(), np.sqrt(values.todense() * 3).sum(axis=0))
    assert launches == 0


def test_array_api_namespace(random: np.random.Generator, launched: Compute) -> None:
    compat = pytest.importorskip("array_api_compat", reason=f"array-api-compat {MISSING}")
    values = random.standard_normal((60, 5))
    x = da.from_array(values, chunks=(20, 5))
    xp = compat.array_namespace(x)
    found, launches = launched(lambda: xp.mean(xp.exp(-xp.abs(x)) * xp.sin(x), axis=0).compute())
    np.testing.assert_allclose(found, np.mean(np.exp(-abs(values)) * np.sin(values), axis=0))
    assert launches


def test_dlpack_in_and_out_of_chunks(random: np.random.Generator, launched: Compute) -> None:
    torch = pytest.importorskip("torch", reason=f"torch {MISSING}")
    values = random.standard_normal((60, 5))
    x = da.from_array(values, chunks=(20, 5))

    def through(chunk: Any) -> Any:
        return np.from_dlpack(torch.from_dlpack(chunk) * 2)

    found, launches = launched(
        lambda: (((x + 1) * 3).map_blocks(through, dtype=x.dtype) * 2 + 1).compute()
    )
    np.testing.assert_allclose(found, (values + 1) * 12 + 1)
    assert launches == 6


def test_chunks_feed_a_torch_loader(random: np.random.Generator, launched: Compute) -> None:
    torch = pytest.importorskip("torch", reason=f"torch {MISSING}")
    values = random.standard_normal((60, 5))
    x = da.from_array(values, chunks=(20, 5)) * 2 + 1

    class Rows(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[Any]:
            for place in range(x.numblocks[0]):
                yield from torch.from_dlpack(x.blocks[place].compute())

    loader = torch.utils.data.DataLoader(Rows(), batch_size=16)
    batches, launches = launched(lambda: list(loader))
    assert [len(batch) for batch in batches] == [16, 16, 16, 12]
    np.testing.assert_allclose(torch.cat(batches).numpy(), values * 2 + 1)
    assert launches == 3


def test_functions_of_numba(random: np.random.Generator, launched: Compute) -> None:
    import numba

    values = random.standard_normal((60, 5))
    x = da.from_array(values, chunks=(20, 5))

    @numba.njit  # type: ignore[untyped-decorator]
    def doubled(chunk: Any) -> Any:
        return chunk * 2

    @numba.vectorize  # type: ignore[untyped-decorator]
    def tripled(value: Any) -> Any:
        return value * 3

    found, launches = launched(
        lambda: (tripled((x + 1).map_blocks(doubled, dtype=x.dtype)) * 3 + 1).compute()
    )
    np.testing.assert_allclose(found, (values + 1) * 18 + 1)
    assert launches


def test_gufuncs_of_numba_have_a_kernel_before_and_one_after(
    random: np.random.Generator, launched: Compute
) -> None:
    import numba
    import xarray as xr

    @numba.guvectorize(["void(float64[:], float64[:])"], "(n)->()")  # type: ignore[untyped-decorator]
    def highest(lane: Any, result: Any) -> None:
        result[0] = lane[0]
        for value in lane:
            result[0] = max(result[0], value)

    @numba.guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")  # type: ignore[untyped-decorator]
    def summed(lane: Any, result: Any) -> None:
        result[0] = lane[0]
        for place in range(1, len(lane)):
            result[place] = result[place - 1] + lane[place]

    values = random.standard_normal((60, 6))
    x = da.from_array(values, chunks=(20, 6))
    days = xr.DataArray(da.from_array(values, chunks=(60, 2)), dims=("day", "place"))
    lanes = da.apply_gufunc(highest, "(n)->()", x * 2 + 1, output_dtypes=float)
    best = xr.apply_ufunc(
        highest, days * 2 + 1, input_core_dims=[["day"]], dask="parallelized", output_dtypes=[float]
    )
    expected = (values * 2 + 1).max
    for program, found in (
        (lanes * 3 - 1, expected(axis=1) * 3 - 1),
        ((x * 2 + 1).map_blocks(summed, dtype=float) * 3 - 1,
         (values * 2 + 1).cumsum(axis=1) * 3 - 1),
        ((best * 3 - 1).data, expected(axis=0) * 3 - 1),
    ):  # fmt: skip
        result, launches = launched(program.compute)
        np.testing.assert_allclose(result, found)
        assert launches
        explained = gpusched.explain(program)
        assert len(explained.kernels) == 2
        breaks = [each for each in explained.breaks if each.code == "LIBRARY"]
        assert all("numba has compiled" in each.reason for each in breaks)
