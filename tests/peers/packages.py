"""Packages that use dask's arrays, whose own tests `make test-ecosystem` runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A package, at one release, and where its tests are."""

    requirements: tuple[str, ...]
    """What is installed in its environment beside gpusched; the first is the package itself."""
    tests: str
    """The module of its tests; a folder of the repository where that is given."""
    repository: str = ""
    """On GitHub, where the wheel has no tests."""
    revision: str = ""
    """A tag of the repository, or a commit."""
    every: int = 1
    """Each n-th test that mentions dask is run, and of the others a fifth of that."""
    skipped: tuple[str, ...] = ()
    """Files of tests that are left out: they compute no dask arrays, or need a network."""
    expected: tuple[tuple[str, str], ...] = ()
    """Tests, by name, that pass plain and may fail fused, with the reason."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that its tests need."""

    @property
    def release(self) -> str:
        """The version that is tested."""
        return self.requirements[0].rpartition("==")[2]


PACKAGES = {
    "xarray": Package(
        (
            "xarray==2026.9.0",
            "scipy",
            "bottleneck",
            "numbagg",
            "flox",
            "zarr",
            "netCDF4",
            "hypothesis",
            "pytz",
        ),
        "xarray.tests",
        every=40,
    ),
    "flox": Package(
        ("flox==0.11.2", "xarray==2026.9.0", "hypothesis", "scipy", "syrupy", "numbagg", "sparse"),
        "tests",
        repository="xarray-contrib/flox",
        revision="v0.11.2",
        every=100,
        # They need the benchmarks of the repository.
        skipped=("test_asv.py", "test_cohorts.py"),
    ),
    "dask-array": Package(("dask-array==0.7.1", "scipy", "xarray"), "dask_array.tests", every=20),
    "dask-image": Package(
        ("dask-image==2026.5.0", "dask[dataframe]", "pyarrow"),
        "tests/test_dask_image",
        repository="dask/dask-image",
        # Of the release, whose tag the repository lacks.
        revision="f0ee7aee4c4826d9c90aeb04dc9184bbf0baa924",
        every=10,
    ),
    "dask-ml": Package(
        ("dask-ml==2025.1.0",),
        "tests",
        repository="dask/dask-ml",
        revision="v2025.1.0",
        every=12,
    ),
    "xarray-spatial": Package(
        ("xarray-spatial==0.5.3", "dask[dataframe]", "pyarrow"),
        "xrspatial.tests",
        every=3,
        # Fused since it may unpack `np.gradient(data)`: as exact as NumPy, in other last bits.
        expected=tuple(
            (
                f"test_hillshade::test_hillshade_numpy_equals_dask_numpy[{dtype}-size1]",
                "asks for 1e-7, and computes arctangents and sines of float32",
            )
            for dtype in ("int32", "int64", "float32", "float64")
        ),
    ),
    "xhistogram": Package(("xhistogram==0.3.2",), "xhistogram.test"),
    "xgcm": Package(("xgcm==0.10.1",), "xgcm.test", every=15),
    "iris": Package(("scitools-iris==3.14.1", "filelock", "requests"), "iris.tests", every=20),
    "hyperspy": Package(("hyperspy==2.5.0",), "hyperspy.tests", every=10),
    "satpy": Package(
        (
            "satpy==0.60.0",
            "rasterio",
            "h5netcdf",
            "netCDF4",
            "h5py",
            "pyhdf",
            "python-geotiepoints",
            "pyspectral",
            "rioxarray",
            "pyarrow",
            "pytest-lazy-fixtures",
        ),
        "satpy.tests",
        every=40,
    ),
    "unyt": Package(("unyt==3.2.0",), "unyt.tests", every=2),
    "pyresample": Package(
        (
            "pyresample==1.35.0",
            "pykdtree",
            "pytest-lazy-fixtures",
            "rasterio",
            "xarray",
            "zarr",
        ),
        "pyresample.test",
        every=24,
    ),
    "scores": Package(
        ("scores==2.4.0", "dask[dataframe]", "h5netcdf", "numba", "pyarrow"),
        "tests",
        repository="nci/scores",
        revision="2.4.0",
        # It needs a network.
        skipped=("test_sample_data.py",),
    ),
}
"""By name, in the order of the page."""
