"""Daily temperatures against the mean of their month: xarray's groupby, on a generated field."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, seeded

ROWS, COLUMNS = 64, 128
START = np.datetime64("2000-01-01")


def temperatures(count: int, dtype: str) -> list[np.ndarray]:
    """Return kelvins by day, latitude and longitude, and the month of each day.

    Warm at the equator, a yearly wave that grows towards the poles and turns over at the equator,
    a slow drift, and weather: noise that lasts for days.
    """
    days = max(730, count // (ROWS * COLUMNS))
    random = seeded()
    latitude = np.radians(np.linspace(-87, 87, ROWS))[:, None]
    normal = (300 - 45 * np.sin(latitude) ** 2).astype("f4")
    field = np.empty((days, ROWS, COLUMNS), dtype)
    weather = np.zeros((ROWS, COLUMNS), "f4")
    for day in range(days):
        weather = 0.8 * weather + 2 * random.standard_normal((ROWS, COLUMNS), dtype="f4")
        wave = -18 * np.sin(latitude) * np.cos(2 * np.pi * (day - 15) / 365.25)
        field[day] = normal + wave + weather + 1e-4 * day
    return [field, months(days)]


def months(days: int) -> np.ndarray:
    """Return the month of each day, 0 to 11."""
    return (START + np.arange(days)).astype("datetime64[M]").astype(int) % 12


def anomaly(xp: Any, field: Any, month: Any) -> Any:
    """Return what is over the mean of the month, by NumPy."""
    result = np.empty_like(field)
    for number in range(12):
        days = month == number
        result[days] = field[days] - field[days].mean(axis=0)
    return result


def with_xarray(xp: Any, field: Any, month: Any) -> Any:
    """Return the same by xarray, whose array may be dask's."""
    import xarray as xr

    time = START + np.arange(len(field))
    data = xr.DataArray(field, dims=("time", "y", "x"), coords={"time": time})
    groups = data.groupby("time.month")
    return (groups - groups.mean("time")).data


def by_index(xp: Any, field: Any, month: Any) -> Any:
    """Return the same with JAX: sums by month, then the day's own month taken out of them."""
    sums = xp.zeros((12, *field.shape[1:]), field.dtype).at[month].add(field)
    return field - (sums / xp.bincount(month, length=12)[:, None, None].astype(field.dtype))[month]


def torch_program(xp: Any, field: Any, month: Any) -> Any:
    sums = xp.zeros((12, *field.shape[1:]), dtype=field.dtype).index_add(0, month, field)
    return field - (sums / xp.bincount(month, minlength=12)[:, None, None].to(field.dtype))[month]


NO_GROUPS = "numexpr has no groups"

WORK = Work(
    "climate",
    "climate anomalies",
    "W12 xarray: daily temperatures less the mean of their month, 64 x 128 places",
    temperatures,
    anomaly,
    programs={"dask": with_xarray, "jax": by_index, "torch": torch_program},
    absent={
        "numexpr": NO_GROUPS,
        "dask-numexpr": NO_GROUPS,
        "cubed": "xarray's groupby needs cubed-xarray and flox there",
    },
    tolerance=4096,
)
