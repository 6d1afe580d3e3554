"""Programs in dask.array and NumPy that know nothing of a GPU, by the operation that each shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np

import gpusched

SHAPE, CHUNKS = (1024, 512), (256, 512)
EDGES = np.linspace(-3.0, 3.0, 25)


def host() -> np.ndarray:
    """Return the values that the programs load."""
    return np.random.default_rng(7).standard_normal(SHAPE)


def loaded(chunks: Any = CHUNKS) -> da.Array:
    """Return them as an array of dask's."""
    return da.from_array(host(), chunks=chunks)


def _wide() -> da.Array:
    return da.from_array(host().reshape(8, -1), chunks=(2, -1))


_STATE = da.random.RandomState


class Program(NamedTuple):
    """A program of the table."""

    operation: str
    """What it is for, as the documentation's table has it."""
    build: Callable[[Path], Any]
    """Gives what is computed, with a folder for files."""
    tolerance: float = 1e-12
    """Relative and absolute; sums are added up in another order."""
    stored: Callable[[Path], np.ndarray] | None = None
    """Reads what the program has written to the folder."""
    needs: str = ""
    """A library that not every environment of the tests has."""


def _delayed(folder: Path) -> da.Array:
    parts = [dask.delayed(np.full)((64, 256), k + 0.5) for k in range(4)]
    blocks = [da.from_delayed(part, (64, 256), dtype=float) for part in parts]
    return da.concatenate(blocks) * 2 + 1


def _read(block_info: Any = None) -> np.ndarray:
    place = block_info[None]["chunk-location"][0]
    return np.random.default_rng(place).standard_normal(CHUNKS)


def _smooth(block: np.ndarray) -> np.ndarray:
    return (block[:-2] + block[1:-1] + block[2:]) / 3


def _own(block: np.ndarray) -> np.ndarray:
    return np.exp(-(block**2)) * 2


def _sorted(block: np.ndarray) -> np.ndarray:
    return np.sort(block, axis=1)


def _zarr(folder: Path) -> da.Array:
    import zarr

    with dask.config.set(scheduler="sync"):
        zarr.save_array(str(folder / "in.zarr"), host())
    return da.from_zarr(str(folder / "in.zarr"), chunks=CHUNKS) * 2 + 1


def _to_zarr(folder: Path) -> Any:
    return (loaded() * 2 + 1).to_zarr(str(folder / "out.zarr"), compute=False, overwrite=True)


def _store(folder: Path) -> Any:
    import zarr

    path = str(folder / "out.zarr")
    target = zarr.create_array(path, shape=SHAPE, chunks=CHUNKS, dtype=float)
    return da.store(loaded() * 2 + 1, target, compute=False)


def _from_zarr(folder: Path) -> np.ndarray:
    import zarr

    return np.asarray(zarr.open_array(str(folder / "out.zarr"))[:])


def _xarray(folder: Path) -> Any:
    import xarray as xr

    named = xr.DataArray(loaded(), dims=("time", "x"))
    return ((named - named.mean("time")) / named.std("time")).data


def _maps() -> da.Array:
    """Return the values as 64 maps, of which a task makes a chunk each."""
    return da.from_array(host().reshape(64, 64, 128), chunks=(16, 64, 128))


def _anomalies(values: da.Array, *dims: str) -> da.Array:
    import xarray as xr

    labels = ("time", np.arange(len(values)) // (len(values) // 4))
    named = xr.DataArray(values, dims=("time", *dims), coords={"label": labels})
    return (named.groupby("label") - named.groupby("label").mean()).data


def _tiny_chunks() -> da.Array:
    """Return what is computed by batches: chunks of 8192 elements, and then pieces of them."""
    x = da.from_array(np.tile(host(), (2, 1)), chunks=(16, 512))
    y = da.exp(-(x**2)) + da.sin(x)
    return y[:, ::-1] * 2 - y.mean(axis=1, keepdims=True)


def _rows(block: np.ndarray) -> np.ndarray:
    return np.tanh(block) @ np.ones((SHAPE[1], 3))


def _torch(folder: Path) -> Any:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(SHAPE[1], 16), torch.nn.ReLU()).double().eval()
    return gpusched.apply(module, loaded() * 2 + 1)


def _jax(folder: Path) -> Any:
    import jax.numpy as jnp

    return gpusched.apply(lambda x: jnp.tanh(x).sum(axis=1), loaded() * 2 + 1, library="jax",
                          cast=True)  # fmt: skip


PROGRAMS = [
    Program("ones, zeros, full", lambda _: da.full(SHAPE, 1.5, chunks=CHUNKS) * 2 + 1),
    Program("arange, linspace", lambda _: da.linspace(0, 1, 2**16, chunks=2**14) ** 2 + 1),
    Program("random", lambda _: da.random.default_rng(3).normal(size=SHAPE, chunks=CHUNKS) * 2 + 1),
    Program("RandomState", lambda _: _STATE(3).uniform(size=SHAPE, chunks=CHUNKS) + 1),
    Program("from_array", lambda _: loaded() * 2 + 1),
    Program("from_delayed", _delayed),
    Program("map_blocks of a reader",
            lambda _: da.map_blocks(_read, dtype=float, chunks=((256,) * 4, (512,))) * 2 + 1),
    Program("from_zarr", _zarr),
    Program("arithmetic, ufuncs", lambda _: da.exp(-(loaded() ** 2)) + da.sin(loaded())),
    Program("tiny chunks", lambda _: _tiny_chunks()),
    Program("one operation", lambda _: loaded() + 1),
    Program("comparison, where", lambda _: da.where(loaded() > 0, loaded(), 0.0) + 1),
    Program("astype", lambda _: (loaded() * 100).astype("int32") + 1),
    Program("broadcasting", lambda _: loaded() - loaded()[0] * 2),
    Program("sum of all", lambda _: (loaded() * 2).sum()),
    Program("sum along an axis", lambda _: (loaded() * 2).sum(axis=0)),
    Program("sum with large results", lambda _: (_wide() * 2).sum(axis=0)),
    Program("mean, var, std", lambda _: loaded().std(axis=1) + loaded().mean(axis=1)),
    Program("min, max", lambda _: loaded().max(axis=1) - loaded().min(axis=1)),
    Program("nansum, nanmax", lambda _: da.nanmax(loaded(), axis=1) + da.nansum(loaded(), axis=1)),
    Program("any, all", lambda _: (loaded() > 3).any() | (loaded() > -9).all()),
    Program("argmax", lambda _: (loaded() * 2).argmax(axis=1)),
    Program("cumsum", lambda _: (loaded() * 2).cumsum(axis=0) + 1),
    Program("map_blocks", lambda _: loaded().map_blocks(_own)),
    Program("map_blocks of np.sort", lambda _: (loaded() + 1).map_blocks(_sorted) * 2),
    Program("map_overlap", lambda _: loaded().map_overlap(
        _smooth, depth={0: 1, 1: 0}, boundary="reflect", trim=False, dtype=float,
        chunks=loaded().chunks)),
    Program("slicing", lambda _: (loaded() + 1)[10:1000:2, 3:] * 2),
    Program("fancy indexing", lambda _: (loaded() + 1)[[3, 400, 7, 90]] * 2),
    Program("transpose, reshape", lambda _: (loaded() + 1).T.reshape(1024 * 512) * 2),
    Program("rechunk", lambda _: (loaded() + 1).rechunk((512, 256)) * 2),
    Program("concatenate, stack", lambda _: da.concatenate([loaded() + 1, loaded() - 1]) * 2),
    Program("matmul", lambda _: (loaded() + 1) @ (loaded() + 1).T),
    Program("fft", lambda _: abs(da.fft.fft(loaded() + 1, axis=1))),
    Program("linalg.svd", lambda _: da.linalg.svd(loaded() * 2)[1]),
    Program("complex numbers", lambda _: abs((loaded() + 1j) * 2)),
    Program("strings, objects", lambda _: loaded().round(1).astype(str)),
    Program("masked arrays", lambda _: da.ma.masked_greater(loaded(), 0.0) * 2 + 1),
    Program("histogram", lambda _: da.histogram(loaded() * 2, bins=16, range=(-9, 9))[0]),
    Program("digitize, searchsorted",
            lambda _: da.digitize(loaded() * 2, EDGES) + da.searchsorted(da.asarray(EDGES),
                                                                         loaded())),
    Program("map_blocks of np.interp",
            lambda _: (loaded() + 1).map_blocks(np.interp, xp=EDGES, fp=EDGES**2)),
    Program("gradient", lambda _: da.gradient(loaded() * 2, 0.5, axis=1)),
    Program("gradient at points",
            lambda _: da.gradient(loaded() * 2, np.arange(1024.0) ** 1.5, axis=0)),
    Program("median of 256 rows", lambda _: da.median(loaded() * 2, axis=1)),
    Program("median of 1,024 rows", lambda _: da.median(loaded((1024, 512)) * 2, axis=1)),
    Program("nanquantile", lambda _: da.nanquantile(loaded() + 1, [0.2, 0.9], axis=1)),
    Program("setitem", lambda _: _set(loaded() * 2)),
    Program("xarray", _xarray),
    Program("xarray groupby, pieces of 512", lambda _: _anomalies(loaded(), "x")),
    Program("xarray groupby, pieces of 8192", lambda _: _anomalies(_maps(), "y", "x")),
    Program("apply of a function", lambda _: gpusched.apply(_rows, loaded() * 2 + 1)),
    Program("apply of a torch module", _torch, needs="torch"),
    Program("apply of a JAX function", _jax, tolerance=1e-5, needs="jax"),
    Program("store", _store, stored=_from_zarr),
    Program("to_zarr", _to_zarr, stored=_from_zarr),
]  # fmt: skip


def _set(x: da.Array) -> da.Array:
    x[x > 1] = 0.0
    return x + 1
