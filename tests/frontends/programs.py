"""The same programs on arrays of each front end, and the ways in which they are computed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.graph_manipulation
import numpy as np

Program = Callable[[ModuleType, Any], Any]


def damped(x: Any) -> Any:
    return np.tanh(x) * np.exp(-x * x)


def picky(x: Any) -> Any:
    if not len(x) > 1:
        raise ZeroDivisionError
    return np.sqrt(abs(x)) + 1


PROGRAMS: dict[str, Program] = {
    "chain": lambda da, x: da.sqrt(abs(x)) * 2 + x**2 - 1,
    "sum": lambda da, x: ((x - 0.5) ** 2).sum(),
    "mean": lambda da, x: (x * 2 + 1).mean(axis=0),
    "min": lambda da, x: da.tanh(x).min(axis=1),
    "max": lambda da, x: da.tanh(x).max(axis=0),
    "any": lambda da, x: (x * 2 > 1).any(axis=0),
    "transpose": lambda da, x: (x + x.T) * 2,
    # dask cannot tell what the function returns, since it takes no empty arrays.
    "unknown result": lambda da, x: (x + 1).map_blocks(picky, dtype=x.dtype) * 2,
    "slice": lambda da, x: (x * 2 + 1)[5:150:2, 10:] - 1,
    "overlap": lambda da, x: x.map_overlap(damped, 1, boundary="reflect"),
    "map_blocks": lambda da, x: x.map_blocks(damped, dtype=x.dtype),
    "concatenate": lambda da, x: da.concatenate([x * 2, x + 1]) ** 2 + 1,
    "stack": lambda da, x: (da.stack([x, x + 1]) * 2).sum(axis=0),
    "astype": lambda da, x: (x * 2).astype("f4") + np.float32(1),
    "clip": lambda da, x: da.clip(x * 3, -1, 1) + 0.5,
    "broadcast": lambda da, x: (x * x[:, :1] + x[:1]) * 2,
    "integers": lambda da, x: (x.astype("i8") * 3 + 1) % 7,
    "shared": lambda da, x: (x * 2 + 1).sum(axis=0) + (x * 2 + 1)[0],
    "repeat": lambda da, x: x.rechunk((50, 200)) * 2 + 1,
}
"""What all three front ends have."""

FURTHER: dict[str, Program] = {
    "where": lambda da, x: da.where(x > 0, x * 2, -x + 1),
    "var": lambda da, x: (x * 2 + 1).var(axis=1),
    "std": lambda da, x: da.exp(x).std(),
    "normalise": lambda da, x: (x - x.mean(axis=0)) / x.std(axis=0),
    "nanmean": lambda da, x: da.nanmean(da.where(x > 0, x, np.nan) * 2, axis=0),
    "nanmax": lambda da, x: da.nanmax(da.where(x > 0, x, np.nan) * 2, axis=0),
    "argmax": lambda da, x: (x * 2 + 1).argmax(axis=0),
    # Small graphs keep the chains that dask makes, which the front ends make differently.
    "cumsum": lambda da, x: (x.rechunk((50, 50)) * 2 + 1).cumsum(axis=0),
    "coarsen": lambda da, x: da.coarsen(np.mean, x * 2 + 1, {0: 2, 1: 5}) - 1,
    "select": lambda da, x: da.select([x > 1, x > 0], [x * 2, x + 1], 0.5) + 1,
    "gradient": lambda da, x: da.gradient(x * 2 + 1, axis=0),
    "isnull": lambda da, x: ~da.isnull(x * 2 + 1),
    "creation": lambda da, x: (
        x[0] * da.arange(200, chunks=100) + da.linspace(0, 1, 200, chunks=100)
    ),
    "matmul": lambda da, x: (x * 2 + 1) @ (x - 1),
    "isin": lambda da, x: da.where(da.isin((x * 3).astype("i4"), [1, 2]), x, 0.5) * 2,
    "tensordot": lambda da, x: da.tensordot(
        x * 2 + 1, da.linspace(0, 1, 200, chunks=100), axes=((0,), (0,))
    ),
    "matvec": lambda da, x: (x * 2 + 1) @ np.linspace(0, 1, 200) + 1,
    "einsum": lambda da, x: da.einsum("ij,i->j", x * 2 + 1, da.linspace(0, 1, 200, chunks=100)),
}
"""What dask's array expressions do not have (dask 2026.8)."""


def program(x: Any) -> Any:
    return abs(x * 2 + 1) - 0.5


def persisted(da: ModuleType, x: Any) -> Any:
    return (program(x).persist() * 3 + 1).compute()


def persisted_together(da: ModuleType, x: Any) -> Any:
    first, second = dask.persist(program(x), program(x) * 3 + 1)
    return dask.compute(first, second)[1]


def stored(da: ModuleType, x: Any) -> Any:
    target = np.empty(x.shape)
    da.store(program(x), target)
    return target


def zarr(da: ModuleType, x: Any) -> Any:
    import zarr

    with tempfile.TemporaryDirectory() as folder:
        program(x).to_zarr(folder + "/x")
        return zarr.open_array(folder + "/x")[:]


def together(da: ModuleType, x: Any) -> Any:
    """Compute arrays with each other, which share what they begin with."""
    common = x * 2 + 1
    return np.stack(dask.compute(abs(common), (common * common) - 3))


def mixed(da: ModuleType, x: Any) -> Any:
    """Compute an array with collections of other kinds."""
    other = dask.delayed(sum)([1, 2])
    first, second = dask.compute(program(x), other)
    return first + second


def delayed(da: ModuleType, x: Any) -> Any:
    return dask.delayed(np.negative)(program(x)).compute()


def blocks_delayed(da: ModuleType, x: Any) -> Any:
    blocks = program(x).to_delayed().tolist()
    return np.block(list(map(list, dask.compute(*blocks))))


def optimised(da: ModuleType, x: Any) -> Any:
    (found,) = dask.optimize(program(x))
    return found.compute()


def columns(da: ModuleType, x: Any) -> Any:
    """Compute with columns of a dataframe, which are arrays of the front end."""
    import pandas as pd
    from dask import dataframe as dd

    values = np.random.default_rng(1).standard_normal((200, 2))
    table = dd.from_pandas(pd.DataFrame(values, columns=["a", "b"]), npartitions=4)
    first, second = (table[name].to_dask_array(lengths=True) for name in "ab")
    if not isinstance(first, type(x)):
        raise NotImplementedError("dataframes have arrays of another front end")
    return (abs(first * 2 + second) - 0.5).compute()


def blocks(da: ModuleType, x: Any, made: Callable[[Any], Any]) -> Any:
    """Return an array like `x`, whose chunks are what `made` makes of parts of its values."""
    values = np.asarray(x.compute())
    rows, columns = x.chunks
    parts = [
        [
            da.from_delayed(made(part), part.shape, values.dtype)
            for part in np.split(row, np.cumsum(columns)[:-1], axis=1)
        ]
        for row in np.split(values, np.cumsum(rows)[:-1])
    ]
    return da.block(parts)


def made_delayed(da: ModuleType, x: Any) -> Any:
    """Compute with what delayed calls give."""
    return program(blocks(da, x, dask.delayed(np.copy))).compute()


def delayed_between(da: ModuleType, x: Any) -> Any:
    """Compute with what a delayed call makes of a computed array."""
    negative = dask.delayed(np.negative)(program(x))
    return (da.from_delayed(negative, x.shape, x.dtype) * 3 + 1).compute()


def annotated(da: ModuleType, x: Any) -> Any:
    with dask.annotate(priority=1, retries=2):
        return program(x).compute()


def npy_stack(da: ModuleType, x: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        rows = x.rechunk((x.chunks[0], -1))
        da.to_npy_stack(folder, program(rows))
        return np.asarray(da.from_npy_stack(folder).compute())


def hdf5(da: ModuleType, x: Any) -> Any:
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.hdf5")
        da.to_hdf5(file, "/x", program(x))
        with h5py.File(file) as found:
            return found["/x"][:]


def wrapped(da: ModuleType, x: Any) -> Any:
    """Compute with xarray, over chunks that it is given."""
    import xarray as xr

    return program(xr.DataArray(x)).compute().data


def chunked(da: ModuleType, x: Any) -> Any:
    """Compute with xarray, over chunks that its chunk manager makes."""
    import xarray as xr

    if da.__name__ == "dask_array":
        from dask_array.xarray import register

        register()
    lazy = program(xr.DataArray(np.asarray(x.compute()), dims=("a", "b")).chunk(a=50, b=200))
    assert isinstance(lazy.data, type(x))
    return lazy.compute().data


WAYS: dict[str, Program] = {
    "compute": lambda da, x: program(x).compute(),
    "persist": persisted,
    "dask.persist": persisted_together,
    "store": stored,
    "to_zarr": zarr,
    "dask.compute": together,
    "mixed": mixed,
    "delayed": delayed,
    "to_delayed": blocks_delayed,
    "dask.optimize": optimised,
    "columns": columns,
    "from_delayed": made_delayed,
    "delayed between": delayed_between,
    "annotate": annotated,
    "to_npy_stack": npy_stack,
    "xarray": wrapped,
    "xarray chunks": chunked,
}
"""Ways to compute an array, with any scheduler."""

WITH_THREADS: dict[str, Program] = {"to_hdf5": hdf5}
"""Ways that a cluster does not have, since files are not sent."""

CLONED: dict[str, Program] = {
    "clone": lambda da, x: dask.graph_manipulation.clone(program(x)).compute(),
    "bind": lambda da, x: dask.graph_manipulation.bind(program(x), x + 1).compute(),
    "checkpoint": lambda da, x: dask.graph_manipulation.wait_on(program(x)).compute(),
}


def futures(da: ModuleType, x: Any) -> Any:
    from distributed import get_client

    return get_client().compute(program(x)).result()


def several_futures(da: ModuleType, x: Any) -> Any:
    from distributed import get_client

    found = get_client().compute([program(x), program(x) * 3 + 1])
    return np.stack(get_client().gather(found))


def client_persist(da: ModuleType, x: Any) -> Any:
    from distributed import get_client

    return (get_client().persist(program(x)) * 3 + 1).compute()


def client_annotate(da: ModuleType, x: Any) -> Any:
    """Compute with annotations, which the scheduler has of each task."""
    from distributed import futures_of, get_client, wait

    client = get_client()
    with dask.annotate(priority=1, retries=2):
        kept = client.persist(program(x))
    wait(kept)

    keys = [future.key for future in futures_of(kept)]

    def annotations(dask_scheduler: Any) -> list[Any]:
        return [dask_scheduler.tasks[key].annotations for key in keys]

    assert client.run_on_scheduler(annotations) == [{"priority": 1, "retries": 2}] * 4
    return kept.compute()


def scattered(da: ModuleType, x: Any) -> Any:
    """Compute with chunks that are futures."""
    from distributed import get_client

    # Under keys of their own: those of equal data that has just been released may be lost.
    return program(blocks(da, x, lambda part: get_client().scatter(part, hash=False))).compute()


def computed_futures(da: ModuleType, x: Any) -> Any:
    """Compute with chunks that are futures of what the cluster computes."""
    from distributed import get_client

    submit = get_client().submit
    return program(blocks(da, x, lambda part: submit(np.copy, part, pure=False))).compute()


def scattered_argument(da: ModuleType, x: Any) -> Any:
    """Compute with a function that is given a future beside its chunks."""
    from distributed import get_client

    row = get_client().scatter(np.arange(200.0), hash=False)
    return (program(x).map_blocks(np.add, row, dtype=x.dtype) * 2).compute()


ON_CLUSTERS: dict[str, Program] = {
    "Client.compute": futures,
    "Client.compute several": several_futures,
    "Client.persist": client_persist,
    "Client.persist annotated": client_annotate,
    "scattered": scattered,
    "submitted": computed_futures,
    "scattered argument": scattered_argument,
}
