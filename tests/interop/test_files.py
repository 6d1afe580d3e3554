"""zarr 3 stores in and out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

Compute = Callable[[Callable[[], Any]], tuple[Any, int]]


def test_zarr_in_and_out(tmp_path: Path, random: np.random.Generator, launched: Compute) -> None:
    values = random.standard_normal((100, 60))
    x = da.from_array(values, chunks=(30, 60))

    def program() -> Any:
        (x * 2 + 1).to_zarr(str(tmp_path / "a.zarr"))
        y = da.from_zarr(str(tmp_path / "a.zarr"))
        return (np.sqrt(abs(y)) + y).compute()

    found, launches = launched(program)
    y = values * 2 + 1
    np.testing.assert_allclose(found, np.sqrt(abs(y)) + y)
    assert zarr.open(tmp_path / "a.zarr").metadata.zarr_format == 3
    assert launches == 8
