"""Real libraries used by many threads: ``python -m tests.threadsafe.real LIBRARY FOLDER``.

In a process of its own, since what goes wrong ends the process. ``--plain`` as a third argument
leaves the library as it is, to see what does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from distributed import Client

from gpusched import Cluster, threadsafe

FILES = 8
VALUES = 500


def many(function: Callable[[int], Any], times: int = 200) -> list[Any]:
    """Call a function in eight threads."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(function, range(times)))


def write_netcdf(folder: str, i: int) -> None:
    import netCDF4

    with netCDF4.Dataset(f"{folder}/{i}.nc", "w") as file:
        file.createDimension("x", VALUES)
        variable = file.createVariable("v", "f8", ("x",), zlib=True)
        variable[:] = np.arange(VALUES) + i
        file.createGroup("group").setncattr("number", i)


def read_netcdf(folder: str, i: int) -> float:
    import netCDF4

    with netCDF4.Dataset(f"{folder}/{i % FILES}.nc") as file:
        assert isinstance(file["v"], netCDF4.Variable)
        assert file.groups["group"].getncattr("number") == i % FILES
        for name, variable in file.variables.items():
            assert variable.name == name
        # Closed where it is deleted.
        assert netCDF4.Dataset(f"{folder}/{i % FILES}.nc").dimensions["x"].size == VALUES
        return float(file["v"][:].sum()) - VALUES * (i % FILES)


def right(sums: Iterable[float]) -> None:
    assert set(sums) == {VALUES * (VALUES - 1) / 2}


def netCDF4(folder: str) -> None:
    many(partial(write_netcdf, folder), FILES)
    right(many(partial(read_netcdf, folder)))
    with Cluster(2, 4, gpus=0) as cluster, Client(cluster) as client:
        right(client.gather(client.map(partial(read_netcdf, folder), range(400))))


def h5py(folder: str) -> None:
    """Beside netCDF4, which has the same HDF5 in some installations."""
    import h5py

    netCDF4_there = "netCDF4" in sys.modules or _there("netCDF4")

    def write(i: int) -> None:
        with h5py.File(f"{folder}/{i}.h5", "w") as file:
            file["v"] = np.arange(float(VALUES))

    def read(i: int) -> float:
        if netCDF4_there and i % 2:
            return read_netcdf(folder, i)
        with h5py.File(f"{folder}/{i % FILES}.h5") as file:
            return float(file["v"][:].sum())

    many(write, FILES)
    if netCDF4_there:
        many(partial(write_netcdf, folder), FILES)
    right(many(read))


def _there(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def rasterio(folder: str) -> None:
    import rasterio

    shape = {"height": 64, "width": 64, "count": 3, "dtype": "float32"}
    values = np.random.default_rng(0).random((3, 64, 64), dtype="float32")
    with rasterio.open(f"{folder}/r.tif", "w", driver="GTiff", compress="lzw", **shape) as file:
        file.write(values)
    with rasterio.open(f"{folder}/r.tif") as file:
        for i, band in enumerate(many(lambda i: file.read(1 + i % 3))):
            np.testing.assert_array_equal(band, values[i % 3])


def pyfftw(folder: str) -> None:
    import pyfftw

    array = pyfftw.empty_aligned(128, "complex128")
    plans = [pyfftw.builders.fft(array) for _ in range(2)]

    def transform(i: int) -> Any:
        found = [plan(np.full(128, i + j, complex)) for j, plan in enumerate(plans)]
        return found[0][0]

    np.testing.assert_allclose(many(transform), 128 * np.arange(200))


def torch(folder: str) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model.train()
    many(lambda i: model(torch.ones(8, 4)))
    assert int(model[1].num_batches_tracked) == 200
    assert threadsafe.statistics()["lock(torch training)"].calls >= 200
    model.eval()
    calls = threadsafe.statistics()["lock(torch training)"].calls
    expected = model(torch.ones(2, 4))
    for found in many(lambda i: model(torch.ones(2, 4)), 40):
        assert torch.equal(found, expected)
    assert threadsafe.statistics()["lock(torch training)"].calls == calls
    assert torch.jit.script(model)(torch.ones(2, 4)).shape == (2, 4)
    assert torch.fx.symbolic_trace(model)(torch.ones(2, 4)).shape == (2, 4)


def matplotlib(folder: str) -> None:
    import io

    import matplotlib.pyplot as plt

    def draw(i: int) -> bool:
        figure, axes = plt.subplots(layout="tight")
        axes.plot([1, 2, i])
        axes.set_title(r"$\frac{a}{b}$")
        file = io.BytesIO()
        figure.savefig(file)
        plt.close(figure)
        return file.getvalue().startswith(b"\x89PNG")

    assert all(many(draw, 60))
    assert plt.get_fignums() == []


def xarray(folder: str) -> None:
    """Its backend of netCDF4, which has locks of its own around ours."""
    import xarray as xr

    many(partial(write_netcdf, folder), FILES)

    def read(i: int) -> float:
        with xr.open_dataset(f"{folder}/{i % FILES}.nc", engine="netcdf4") as found:
            return float(found.v.sum()) - VALUES * (i % FILES)

    right(many(read))
    names = [f"{folder}/{i}.nc" for i in range(FILES)]
    options = {"engine": "netcdf4", "combine": "nested", "concat_dim": "file"}
    with xr.open_mfdataset(names, **options) as found:
        assert found.v.shape == (FILES, VALUES)
        assert float(found.v.isel(file=2).sum().compute(scheduler="threads")) > 0


if __name__ == "__main__":
    if "--plain" not in sys.argv:
        threadsafe.protect()
    globals()[sys.argv[1]](sys.argv[2])
