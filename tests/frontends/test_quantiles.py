"""dask-array's quantiles without NaN: kernels that give what its sorted lanes give."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import dask
import numpy as np
import pytest

import gpusched


def values(dtype: str) -> np.ndarray:
    found = (np.random.default_rng(0).normal(size=(6, 5, 40)) * 9).astype(dtype)
    if found.dtype.kind == "f":
        found[0, 0, 3:9], found[1, 2] = np.nan, np.nan
        found[2, 1, :39], found[3, 3, 4] = np.nan, np.inf
    return found


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("q", [0.3, [0.1, 0.9], np.array([0.0, 0.5, 1.0])])
@pytest.mark.parametrize("options", [{}, {"keepdims": True}, {"method": "lower"}, {"axis": 0}])
def test_quantiles_are_dask_array_s(dtype: str, q: Any, options: dict[str, Any]) -> None:
    package = pytest.importorskip("dask_array")
    x = package.from_array(values(dtype), chunks=(3, 5, 40))
    program = package.nanquantile(x * 2, q, **{"axis": -1, **options})
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = program.compute(scheduler="sync")
        explained = gpusched.explain(program)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "f4" else 1e-13)
    # With numbagg installed, dask-array calls that.
    selects = "method" not in options and (dtype != "i4" or "axis" in options)
    if selects and find_spec("numbagg") is None:
        assert any("select" in each.name for each in explained.kernels)
