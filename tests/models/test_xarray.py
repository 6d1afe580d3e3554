"""`gpusched.apply` on xarray's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpusched

xarray = pytest.importorskip("xarray")


def image(chunks: Any = None) -> Any:
    values = np.random.default_rng(0).random((4, 20, 10))
    made = xarray.DataArray(
        values,
        {"band": list("rgbn"), "y": np.arange(20.0), "area": ("y", np.arange(20) // 5)},
        ("band", "y", "x"),
        name="image",
    )
    return made.chunk(chunks or {"y": 7})


def total(x: Any) -> Any:
    return x.sum(1)


def test_dimensions_of_a_row_are_named() -> None:
    y = gpusched.apply(total, image(), core="band")
    assert (y.dims, y.name, set(y.coords)) == (("y", "x"), "image", {"y", "area"})
    np.testing.assert_allclose(y.compute(), image().sum("band"))
    assert y.chunks == ((7, 7, 6), (10,))


def test_new_dimensions_can_be_named() -> None:
    weights = np.ones((4, 3))
    y = gpusched.apply(lambda x: x @ weights, image(), core=["band"], dims="feature")
    assert y.dims == ("y", "x", "feature")
    assert gpusched.apply(lambda x: x @ weights, image(), core="band").dims == ("y", "x", "dim_2")
    with pytest.raises(ValueError, match="one row's result has 1 axes"):
        gpusched.apply(lambda x: x @ weights, image(), core="band", dims=("a", "b"))


def test_several_results() -> None:
    low, high = gpusched.apply(lambda x: (x.min(1), x.max(1)), image(), core="band")
    xarray.testing.assert_allclose(low.compute(), image().min("band").compute())
    xarray.testing.assert_allclose(high.compute(), image().max("band").compute())


def test_arrays_in_memory_are_computed_at_once() -> None:
    y = gpusched.apply(total, image().compute(), core="band")
    assert isinstance(y.data, np.ndarray)
    np.testing.assert_allclose(y, image().sum("band"))


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"core='bnd': the array has the dimensions"):
        gpusched.apply(total, image(), core="bnd")
    with pytest.raises(ValueError, match=r"x.rechunk\(\{2: -1\}\)"):
        gpusched.apply(total, image({"band": 2}), core="band")
    with pytest.raises(TypeError, match="not a Dataset: pass the arrays in it"):
        gpusched.apply(total, image().to_dataset())
