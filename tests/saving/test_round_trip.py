"""What is loaded is what was saved, computes the same, and needs no trust where it is data."""

from __future__ import annotations

import operator
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.saving import describe

VALUES = np.random.default_rng(0).random((120, 80))
X = da.from_array(VALUES, chunks=(50, 80))
SQUARE = da.from_array(VALUES[:80] + np.eye(80), chunks=40)
RANDOM = da.random.default_rng(0).random((120, 80), chunks=50)
COUNTS = da.from_array(np.arange(60) % 7, chunks=20)

DATA: dict[str, Callable[[], Any]] = {
    "chain": lambda: ((X - 0.5) ** 2 / (X + 1)).clip(0.1, None),
    "dtypes": lambda: (X.astype("f4") * np.float32(2)).astype("i2"),
    "special numbers": lambda: da.where(X > 0.5, np.nan, -np.inf) * -0.0 + 1j,
    "mean": lambda: X.mean(),
    "column statistics": lambda: da.stack([X.std(axis=0), X.min(axis=0), X.argmax(axis=0)]),
    "standardised": lambda: (X - X.mean(axis=0)) / X.std(axis=0),
    "without nan": lambda: da.nanmax(da.where(X > 0.5, np.nan, X), axis=1),
    "cumulative": lambda: X.cumsum(axis=0)[::7],
    "slices": lambda: X[3:100:2, ::-1][:, None, 5:] * 2,
    "fancy": lambda: X[[5, 1, 80]][:, [3, 0]],
    "mask": lambda: X[X > 0.5],
    "boolean index of rows": lambda: X[np.arange(120) % 3 == 0],
    "shapes": lambda: da.concatenate([X.T, X[:80].T], axis=1).rechunk(33).ravel()[::2],
    "product": lambda: X @ X.T,
    "einsum": lambda: da.einsum("ij,kj->ik", X, X),
    "qr": lambda: da.linalg.qr(X)[1],
    "svd": lambda: da.linalg.svd(X)[1],
    "solve": lambda: da.linalg.solve(SQUARE, SQUARE[:, 0]),
    "fft": lambda: da.fft.rfft(X, axis=1).real,
    "histogram": lambda: da.histogram(X, bins=10, range=(0, 1))[0],
    "unique": lambda: da.unique(COUNTS),
    "bincount": lambda: da.bincount(COUNTS, minlength=7),
    "top": lambda: da.topk(COUNTS, 3),
    "overlap": lambda: da.map_overlap(np.sin, X, depth=1, boundary="reflect"),
    "blocks": lambda: X.map_blocks(np.add, 1.5, dtype="f8").sum(),
    "padded": lambda: da.pad(X, 2, mode="edge"),
    "assigned": lambda: assigned(),
    "random": lambda: (RANDOM + da.random.default_rng(1).normal(1, 2, (120, 80), chunks=50)) * 2,
    "old random": lambda: da.random.RandomState(3).randint(0, 9, size=50, chunks=20),
    "choice": lambda: da.random.default_rng(1).choice(9, size=50, chunks=20),
    "ones": lambda: da.ones((40, 40), chunks=30) + da.arange(40, chunks=11),
    "masked": lambda: da.ma.masked_greater(X, 0.5).sum(axis=0),
    "big-endian": lambda: da.from_array(np.arange(9, dtype=">i4"), chunks=4),
    "dates": lambda: (
        da.from_array(np.arange("2020", "2021", dtype="M8[D]"), chunks=99) + np.timedelta64(1, "D")
    ),
    "fields": lambda: da.from_array(np.ones(5, [("a", "f4"), ("b", "i2")]), chunks=3)["a"],
    "nothing": lambda: X[:0],
    "one number": lambda: da.from_array(np.array(3.5)) * 2,
    "locked": lambda: da.from_array(np.arange(9), chunks=4, lock=True) + 1,
}


def assigned() -> Any:
    y = X.copy()
    y[2:50, 3] = -1.0
    y[y > 0.9] = 0
    return y


@pytest.mark.parametrize("name", list(DATA))
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_array_is_the_same_without_trust(tmp_path: Path, name: str) -> None:
    x = DATA[name]()
    gpusched.save(tmp_path / "x", x)
    assert describe(tmp_path / "x")["code"] == []
    y = gpusched.load(tmp_path / "x")
    assert (y.dtype, y.ndim, type(y._meta)) == (x.dtype, x.ndim, type(x._meta))
    np.testing.assert_equal(y.chunks, x.chunks)
    expected = x.compute(scheduler="threads")
    np.testing.assert_array_equal(y.compute(scheduler="threads"), expected)


@pytest.mark.parametrize("name", ["chain", "standardised", "column statistics", "random", "blocks"])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_loaded_array_runs_the_kernels_that_the_file_shows(tmp_path: Path, name: str) -> None:
    x = DATA[name]()
    gpusched.save(tmp_path / "x", x)
    with (
        dask.config.set({"gpusched.fusion.minimum-elements": 1, "scheduler": "threads"}),
        gpusched.enable(),
    ):
        gpusched.save(tmp_path / "x", x)
        expected = x.compute()
        gpusched.reset_statistics()
        np.testing.assert_array_equal(gpusched.load(tmp_path / "x").compute(), expected)
    about = describe(tmp_path / "x")
    assert sorted(about["kernels"]) == sorted(gpusched.statistics().kernels)
    assert about["kernels"]
    with zipfile.ZipFile(tmp_path / "x") as file:
        for kernel in about["kernels"]:
            assert "def point(" in file.read(f"kernels/{kernel}.py").decode()


def test_loaded_array_takes_part_in_further_operations(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", X * 2)
    y = gpusched.load(tmp_path / "x")
    together = (y[:10] + X[:10]).rechunk(5).sum(axis=0)
    np.testing.assert_allclose(together.compute(scheduler="threads"), VALUES[:10].sum(axis=0) * 3)


def test_tasks_have_names_of_their_own_that_stay_the_same(tmp_path: Path) -> None:
    x = X * 2
    gpusched.save(tmp_path / "x", x)
    first, second = gpusched.load(tmp_path / "x"), gpusched.load(tmp_path / "x")
    assert first.name == second.name != x.name
    assert not first.__dask_graph__().keys() & x.__dask_graph__().keys()


def test_saved_file_can_be_saved_again(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", (X * 2 + 1).sum(axis=0))
    gpusched.save(tmp_path / "y", gpusched.load(tmp_path / "x"))
    found = gpusched.load(tmp_path / "y").compute(scheduler="threads")
    np.testing.assert_allclose(found, (VALUES * 2 + 1).sum(axis=0))


def test_same_computation_makes_the_same_file(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", X * 2)
    gpusched.save(tmp_path / "y", X * 2)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_collections_keep_their_structure(tmp_path: Path) -> None:
    total = X.sum()
    saved = {"a": [X, total], ("b", 1): (total, VALUES, 3, None, "text"), "c": np.float32(2)}
    gpusched.save(tmp_path / "x", saved)
    loaded = gpusched.load(tmp_path / "x")
    assert list(loaded) == list(saved)
    assert loaded["a"][1] is loaded["b", 1][0]
    np.testing.assert_array_equal(loaded["b", 1][1], VALUES)
    assert loaded["b", 1][2:] == (3, None, "text")
    assert type(loaded["c"]) is np.float32
    np.testing.assert_array_equal(loaded["a"][0].compute(scheduler="threads"), VALUES)


def test_tasks_of_several_arrays_are_shared(tmp_path: Path) -> None:
    middle = X * 2 + X.mean()
    gpusched.save(tmp_path / "x", [middle.sum(), middle.max()])
    one, other = gpusched.load(tmp_path / "x")
    assert one.__dask_graph__().keys() & other.__dask_graph__().keys()
    assert dask.compute(one, other, scheduler="threads") == dask.compute(
        middle.sum(), middle.max(), scheduler="threads"
    )


def test_xarray_objects_come_back(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    about = {"units": "m", "levels": [1, 2]}
    array = xarray.DataArray(
        X, dims=("y", "x"), coords={"x": np.arange(80) * 0.5, "zone": ("y", np.arange(120))},
        name="height", attrs=about,
    )  # fmt: skip
    both = xarray.Dataset({"height": array, "mean": array.mean("y")}, attrs={"made": "here"})
    gpusched.save(tmp_path / "array", array * 2)
    gpusched.save(tmp_path / "both", both)
    found = gpusched.load(tmp_path / "array").compute()
    xarray.testing.assert_identical(found, (array * 2).compute())
    loaded = gpusched.load(tmp_path / "both")
    assert loaded.chunks == both.chunks
    assert loaded["height"].attrs == about
    xarray.testing.assert_identical(loaded.compute(), both.compute())


def test_persisted_array_is_saved_with_its_values(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", (X * 2).persist(scheduler="threads") + 1)
    np.testing.assert_array_equal(
        gpusched.load(tmp_path / "x").compute(scheduler="threads"), VALUES * 2 + 1
    )


def test_memory_map_is_saved_with_its_values(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    x = da.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"), chunks=50)
    gpusched.save(tmp_path / "x", x + 1)
    (tmp_path / "x.npy").unlink()
    np.testing.assert_array_equal(
        gpusched.load(tmp_path / "x").compute(scheduler="threads"), VALUES + 1
    )


def test_tasks_of_a_layer_share_one_program(tmp_path: Path) -> None:
    x = da.ones(100_000, chunks=100) * 2 + 1
    gpusched.save(tmp_path / "x", (x, operator.add))
    with zipfile.ZipFile(tmp_path / "x") as file:
        assert file.getinfo("graph.json").file_size < 250 * 1000
    assert (tmp_path / "x").stat().st_size < 30_000


def test_description_tells_shape_and_versions(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", X[X > 0.5])
    about = describe(tmp_path / "x")
    assert about["kind"] == "value"
    assert about["outputs"] == [{"shape": [None], "dtype": "float64", "chunks": [[None] * 3]}]
    assert about["made with"]["gpusched"] == gpusched.__version__
    assert about["made with"]["numpy"] == np.__version__
