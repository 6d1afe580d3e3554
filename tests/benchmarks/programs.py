"""Programs of xarray's and dask's users, with gpusched and without, on dask's threads.

`python -m tests.benchmarks.programs --only anomaly group-std` prints how many times longer plain
dask takes for the same chunks: the first call of a process, where no kernel is known, and the
median of those that find their kernels. First calls have processes of their own, and take turns: in
one process, whichever is not the first finds what the other has imported, and memory it had.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._expr import FinalizeCompute
from dask._task_spec import Task
from dask.base import collections_to_expr

import gpusched
from gpusched.store.service import client as service
from tests.benchmarks import page, report
from tests.benchmarks.first_calls import get_memory, process

NAME = "tests.benchmarks.programs"
LIBRARIES = "dask", "gpusched"
YEAR = 365
DAYS = 10 * YEAR
"""Days of a field, which is divided into chunks of a year."""


def field_of(nbytes: int, seed: int = 0, chunks: int = YEAR) -> Any:
    """Return random numbers by day and place, held in memory, as one dask array of an xarray."""
    import xarray as xr

    side = max(int((nbytes / 8 / DAYS) ** 0.5), 2)
    values = np.random.default_rng(seed).normal(280, 10, (DAYS, side, side))
    days = np.datetime64("2001-01-01") + np.arange(DAYS)
    array = da.from_array(values, chunks=(chunks, side, side))
    return xr.DataArray(array, dims=("time", "y", "x"), coords={"time": days})


Program = Callable[[], Any]
"""Builds a lazy result."""


def anomaly(nbytes: int, flox: bool = True) -> Program:
    """Return days without the mean of their month."""
    x = field_of(nbytes)

    def build() -> Any:
        groups = x.groupby("time.month")
        return (groups - groups.mean()).data

    return _by_flox(build, flox)


def anomaly_variance(nbytes: int) -> Program:
    """Return how much the days of a month differ from its mean."""
    x = field_of(nbytes)

    def build() -> Any:
        groups = x.groupby("time.month")
        return ((groups - groups.mean()) ** 2).mean("time").data

    return _by_flox(build, True)


def standardised(nbytes: int) -> Program:
    """Return how many standard deviations days are from the mean of their month."""
    x = field_of(nbytes)

    def build() -> Any:
        groups = x.groupby("time.month")
        away = groups - groups.mean()
        return (away.groupby("time.month") / groups.std()).data

    return _by_flox(build, True)


def grouped(nbytes: int, name: str, *args: Any, flox: bool = True, chunks: int = YEAR) -> Program:
    """Return a reduction of each month of the year."""
    x = field_of(nbytes, chunks=chunks)
    return _by_flox(lambda: getattr(x.groupby("time.month"), name)(*args).data, flox)


def resampled(nbytes: int) -> Program:
    """Return the mean of each month of each year."""
    x = field_of(nbytes)
    return _by_flox(lambda: x.resample(time="MS").mean().data, True)


def _by_flox(build: Program, flox: bool) -> Program:
    def run() -> Any:
        import xarray as xr

        with xr.set_options(use_flox=flox):
            return build()

    return run


def rolling(nbytes: int, name: str) -> Program:
    """Return a reduction of the thirty days that end with each."""
    x = field_of(nbytes)
    return lambda: getattr(x.rolling(time=30), name)().data


def windows(nbytes: int) -> Program:
    """Return the weighted mean of the week that ends with each day, of an array of windows."""
    import xarray as xr

    x, weights = field_of(nbytes), xr.DataArray(np.linspace(0.1, 1, 7), dims="window")
    return lambda: (x.rolling(time=7).construct("window") * weights).sum("window").data


def zones(nbytes: int) -> Program:
    """Return the mean of each day in each of ten zones."""
    import xarray as xr

    x = field_of(nbytes)
    numbers = np.random.default_rng(0).integers(0, 10, (x.sizes["y"], x.sizes["x"]))
    zone = xr.DataArray(numbers, dims=("y", "x"), name="zone")
    return _by_flox(lambda: x.groupby(zone).mean().data, True)


def detrended(nbytes: int) -> Program:
    """Return days without the line that fits them best."""
    import xarray as xr

    x = field_of(nbytes, chunks=DAYS)

    def build() -> Any:
        fitted = x.polyfit("time", 1).polyfit_coefficients
        return (x - xr.polyval(x.time, fitted)).data

    return build


def interpolated(nbytes: int) -> Program:
    """Return a field between its rows, at twice as many."""
    x = field_of(nbytes)
    x = x.assign_coords(y=np.arange(x.sizes["y"], dtype=float))
    rows = np.linspace(0, x.sizes["y"] - 1, 2 * x.sizes["y"])
    return lambda: x.interp(y=rows).mean("time").data


def composite(nbytes: int) -> Program:
    """Return the best of three images at each place, by their marks for clouds."""
    images = [field_of(nbytes // 3, seed).data for seed in range(3)]

    def build() -> Any:
        clear = [(image > 270) & (image < 300) for image in images]
        return da.select(clear, [image * 0.0001 - 0.1 for image in images], np.nan)

    return build


def halves(nbytes: int) -> Program:
    """Return the mean of a field that is kept as float16."""
    x = (field_of(nbytes * 4) - 280).astype("f2").persist().data
    return lambda: (x * np.float16(1.5) + np.float16(2)).clip(-60, 60).mean(axis=0, dtype="f4")


def crossed(nbytes: int) -> Program:
    """Return how often two fields have values together."""
    x, y = (field_of(nbytes // 2, seed).data for seed in range(2))
    ends = ((230, 330), (-50, 60))
    return lambda: da.histogram2d(x.ravel(), (y - 273.15).ravel(), [40, 50], ends)[0]


def slope(nbytes: int) -> Program:
    """Return how steep a field is at each place, by its neighbours."""
    x = field_of(nbytes).data

    def build() -> Any:
        along, across = da.gradient(x, axis=(1, 2))
        return da.sqrt(along**2 + across**2)

    return build


def change(nbytes: int) -> Program:
    """Return how fast each place warms, by points in time that are not equally far apart."""
    x = field_of(nbytes)
    x = x.assign_coords(time=np.arange(x.sizes["time"], dtype=float) ** 1.01)
    return lambda: x.differentiate("time").data


def correlation(nbytes: int) -> Program:
    """Return how two fields correlate at each place."""
    import xarray as xr

    x, y = field_of(nbytes // 2), field_of(nbytes // 2, seed=1)
    return lambda: xr.corr(x, y, dim="time").data


def quantile(nbytes: int) -> Program:
    """Return what a tenth of the days are below, and above, at each place."""
    x = field_of(nbytes, chunks=DAYS)
    return lambda: x.quantile([0.1, 0.9], "time").data


def median_of_days(nbytes: int) -> Program:
    """Return what half of the days are below at each place."""
    x = field_of(nbytes, chunks=DAYS)
    return lambda: x.median("time").data


def accumulated(nbytes: int) -> Program:
    """Return sums up to each day of what is above freezing."""
    x = field_of(nbytes)
    return lambda: (x - 273.15).clip(0).cumsum("time").data


def histogram(nbytes: int) -> Program:
    """Return how many days are how warm, in degrees Celsius."""
    x = field_of(nbytes).data
    return lambda: da.histogram(x - 273.15, bins=100, range=(-40, 60))[0]


def classes(nbytes: int) -> Program:
    """Return the mean class of each day, of twenty between some bounds."""
    x, bounds = field_of(nbytes).data, np.linspace(-20, 30, 21)
    return lambda: da.digitize(x - 273.15, bounds).mean(axis=(1, 2))


def binned(nbytes: int) -> Program:
    """Return what days add up to by class, of twenty between some bounds."""
    x, bounds = field_of(nbytes).data, np.linspace(-20, 30, 21)

    def build() -> Any:
        celsius = (x - 273.15).ravel()
        labels = da.digitize(celsius, bounds)
        return da.bincount(labels, weights=celsius, minlength=len(bounds) + 1)

    return build


def calibrated(nbytes: int) -> Program:
    """Return what a curve of sixty points makes of the days, and its mean."""
    x, points = field_of(nbytes).data, np.linspace(240, 320, 60)
    values = np.sin(points / 9)
    return lambda: (x - 1).map_blocks(np.interp, points, values, dtype=float).mean(axis=0)


def ndvi(nbytes: int) -> Program:
    """Return the mean of an index of two bands where no cloud is."""
    red, near = field_of(nbytes // 2), field_of(nbytes // 2, seed=1)
    return lambda: ((near - red) / (near + red)).where(red < 290).mean("time").data


def fringes(nbytes: int) -> Program:
    """Return the phase between two complex images, and how coherent they are."""
    side = max(int((nbytes / 32) ** 0.5), 2)
    random = np.random.default_rng(0)
    parts = [random.normal(size=(side, side)) + 1j * random.normal(size=(side, side))
             for _ in range(2)]  # fmt: skip
    first, second = (da.from_array(part, chunks=(-(-side // 8), side)) for part in parts)

    def build() -> Any:
        product = first * second.conj()
        return abs(product) / da.sqrt(abs(first) ** 2 * abs(second) ** 2) + da.angle(product)

    return build


def numba_function(nbytes: int) -> Program:
    """Return what a ufunc that numba has compiled makes of a chain, and its mean."""
    import numba  # type: ignore[import-untyped]

    @numba.vectorize(["float64(float64)"])
    def saturated(x: float) -> float:
        return 300.0 if x > 300.0 else x * x / 300.0

    x = field_of(nbytes).data
    return lambda: (saturated((x - 3) * 1.01) - 2).mean(axis=0)


def series(nbytes: int) -> Program:
    """Return how much the days of each place vary, by a function that is called for each place."""
    import xarray as xr

    def variation(days: Any) -> Any:
        known = days[days > 260]
        return np.nan if len(known) < 1000 else known.std() / known.mean()

    x = field_of(nbytes, chunks=DAYS)
    return lambda: xr.apply_ufunc(
        variation, x, input_core_dims=[["time"]], vectorize=True, dask="parallelized",
        output_dtypes=[float],
    ).data  # fmt: skip


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "anomaly": anomaly,
    "anomaly-variance": anomaly_variance,
    "standardised-by-month": standardised,
    "anomaly-no-flox": partial(anomaly, flox=False),
    "group-mean": partial(grouped, name="mean"),
    "group-std": partial(grouped, name="std"),
    "group-max": partial(grouped, name="max"),
    "group-median": partial(grouped, name="median", chunks=DAYS),
    "group-quantile": lambda nbytes: grouped(nbytes, "quantile", 0.9, chunks=DAYS),
    "group-mean-no-flox": partial(grouped, name="mean", flox=False),
    "resample-mean": resampled,
    "rolling-mean": partial(rolling, name="mean"),
    "rolling-max": partial(rolling, name="max"),
    "rolling-std": partial(rolling, name="std"),
    "windows": windows,
    "zones": zones,
    "detrended": detrended,
    "interpolated": interpolated,
    "slope": slope,
    "change": change,
    "correlation": correlation,
    "quantile": quantile,
    "median": median_of_days,
    "cumsum": accumulated,
    "histogram": histogram,
    "histogram-2d": crossed,
    "classes": classes,
    "bincount-computed": binned,
    "calibration": calibrated,
    "ndvi": ndvi,
    "composite": composite,
    "float16": halves,
    "complex": fringes,
    "numba": numba_function,
    "series": series,
}


@dataclass
class Timing:
    """Seconds from the building of a program to its result."""

    program: str
    tasks: tuple[int, int]
    """How many tasks there are in plain dask's graph, and in gpusched's."""
    first: tuple[float, float] = nan, nan
    """Of the first call of a process, if measured: plain dask's, and gpusched's."""
    plain: list[float] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times longer plain dask takes."""
        return median(self.plain) / median(self.fused)

    def __str__(self) -> str:
        tasks, ours = self.tasks
        return (
            f"| {self.program} | {tasks:,} | {ours:,} | {median(self.plain):.3f} "
            f"| {median(self.fused):.3f} | {self.ratio:.2f} | {self.first[0] / self.first[1]:.2f} |"
        )


def measure(name: str, nbytes: int, repeat: int) -> Timing:
    """Return the timings of both, which take turns, and check that their results agree."""
    build = PROGRAMS[name](nbytes)
    with gpusched.disable():
        plain = tasks_of(build())
        get_memory(nbytes)
        expected = build().compute()
    with gpusched.enable():
        ours = tasks_of(build())
        get_memory(nbytes)
        np.testing.assert_allclose(build().compute(), expected, rtol=1e-6, atol=1e-8)
        with dask.config.set({"gpusched.fusion.tier": "fused"}):  # which waits for its kernels
            np.testing.assert_allclose(build().compute(), expected, rtol=1e-6, atol=1e-8)
    timing = Timing(name, (plain, ours))
    for _ in range(repeat):
        with gpusched.disable():
            timing.plain.append(seconds_of(build))
        with gpusched.enable():
            timing.fused.append(seconds_of(build))
    return timing


def tasks_of(array: Any) -> int:
    """Return how many tasks `compute` runs, without data and other names of tasks."""
    graph = FinalizeCompute(collections_to_expr([array])).optimize().__dask_graph__()
    return sum(isinstance(node, Task) for node in dict(graph).values())


def seconds_of(build: Program) -> float:
    """Return the seconds that a program takes."""
    gc.collect()
    start = perf_counter()
    build().compute()
    return perf_counter() - start


def first_calls(name: str, megabytes: int, repeat: int) -> tuple[float, float]:
    """Return the seconds of first calls, plain dask's and gpusched's, medians of fresh processes.

    They take turns, in a random order. gpusched's find no kernel, and start the compile service.
    """
    found: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    order = random.Random(0)
    for _ in range(repeat):
        for library in order.sample(LIBRARIES, len(LIBRARIES)):
            arguments = ["--first-call", library, "--only", name, "--megabytes", str(megabytes)]
            with tempfile.TemporaryDirectory(prefix="gpusched-first-") as folder:
                found[library].append(process(NAME, arguments, Path(folder))["first"])
    plain, fused = (median(found[library]) for library in LIBRARIES)
    return plain, fused


def first_call(library: str, name: str, nbytes: int) -> float:
    """Return the seconds of a call in this process, which has made none before."""
    if library == "gpusched":
        gpusched.enable()
    build = PROGRAMS[name](nbytes)
    get_memory(nbytes)
    try:
        return seconds_of(build)
    finally:
        service.stop()


def rows_of(names: list[str], megabytes: list[int], repeat: int) -> Iterator[str]:
    """Yield the row of each program: all about inputs of the first size, ratios of the others."""
    with dask.config.set(scheduler="threads"):
        for name in names:
            first, *others = (measure(name, size << 20, repeat) for size in megabytes)
            first.first = first_calls(name, megabytes[0], repeat)
            yield " ".join([str(first), *(f"{each.ratio:.2f} |" for each in others)])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {NAME}", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--megabytes", nargs="+", type=int, default=[300],
                        help="sizes of the inputs (default 300)")  # fmt: skip
    parser.add_argument("--repeat", type=int, default=3, help="timings of each (default 3)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table there")
    parser.add_argument("--first-call", choices=LIBRARIES,
                        help="make this call of one program, and print its seconds")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.first_call:
        with dask.config.set(scheduler="threads"):
            name, size = options.only[0], options.megabytes[0]
            print(json.dumps({"first": first_call(options.first_call, name, size << 20)}))
        return 0
    others = [f"ratio, {size:,} MB" for size in options.megabytes[1:]]
    columns = ["program", "dask's tasks", "gpusched's", "dask, s", "gpusched, s", "ratio",
               "first calls", *others]  # fmt: skip
    rows = [f"| {' | '.join(columns)} |", f"| {' | '.join(['---'] * len(columns))} |"]
    for row in rows_of(options.only, options.megabytes, options.repeat):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    header = report.header(NAME, arguments)
    page.show("\n".join(rows) + f"\n\n{header}", options.write, NAME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
