"""Whose tests are run fused, and which modules of them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.peers.runs import FUSED

EVERY = 3
"""Of tests in common modules; neighbours often differ in one parameter."""


@dataclass(frozen=True)
class Suite:
    """Another project's tests, as its wheel has them."""

    package: str
    """The package that the modules are in."""
    ini: str
    """The file of pytest's settings that the wheel does not carry."""
    common: tuple[str, ...]
    """Modules of which `make test-peers-common` runs each `EVERY`-th test, the longest first."""
    chosen: tuple[str, ...] | None = None
    """All other modules that `make test-peers` runs; None for all that there are."""

    plugins: tuple[str, ...] = ()
    """pytest's plugins that both runs have."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that both runs have."""
    needs: tuple[str, ...] = ()
    """Packages without which there is nothing to run, besides the tests' own."""
    fused: str = FUSED
    """pytest's plugin that the run with gpusched has."""
    gpu: bool = False
    """Whether the tests need a GPU: `make test-gpu` runs them."""

    def others(self) -> tuple[str, ...]:
        """Return the modules that are not common; none without the package."""
        if self.chosen is not None:
            return self.chosen
        try:
            found = importlib.util.find_spec(self.package)
        except ModuleNotFoundError:
            return ()
        folders = [] if found is None else list(found.submodule_search_locations or ())
        names = sorted(p.stem for folder in folders for p in Path(folder).glob("test_*.py"))
        return tuple(n for n in names if n not in self.common and "cupy" not in n)


EXPRESSIONS = (("DASK_ARRAY__QUERY_PLANNING", "True"),)

SUITES = {
    "dask": Suite(
        "dask.array.tests",
        "dask.ini",
        ("test_reductions", "test_array_core", "test_routines", "test_ufunc",
         "test_optimization", "test_overlap", "test_slicing"),
    ),
    "dask-on-a-gpu": Suite(
        "dask.array.tests",
        "dask.ini",
        (),
        chosen=("test_cupy_core", "test_cupy_creation", "test_cupy_gufunc", "test_cupy_linalg",
                "test_cupy_overlap", "test_cupy_percentile", "test_cupy_random",
                "test_cupy_reductions", "test_cupy_routines", "test_cupy_slicing",
                "test_cupy_sparse"),
        needs=("cupy",),
        gpu=True,
    ),
    # NumPy programs, whose chunks gpusched moves to a GPU.
    "dask-on-gpu-workers": Suite(
        "dask.array.tests",
        "dask.ini",
        (),
        chosen=("test_overlap", "test_slicing"),
        needs=("cupy",),
        fused="tests.peers.placed",
        gpu=True,
    ),
    "expressions": Suite(
        "dask.array._array_expr.tests",
        "dask.ini",
        ("test_collection",),
        environment=EXPRESSIONS,
    ),
    "dask-in-expressions": Suite(
        "dask.array.tests",
        "dask.ini",
        (),
        chosen=("test_map_blocks", "test_overlap", "test_reductions", "test_slicing"),
        environment=EXPRESSIONS,
    ),
    "dask-array": Suite(
        "dask_array.tests",
        "dask.ini",
        ("test_collection", "test_map_blocks", "test_slicing"),
    ),
    "xarray": Suite(
        "xarray.tests",
        "xarray.ini",
        ("test_coarsen",),
        chosen=("test_computation", "test_duck_array_ops", "test_groupby", "test_interp",
                "test_rolling", "test_variable", "test_weighted"),
    ),
    # Skips itself where dask's dataframes are missing.
    "xarray-with-dataframes": Suite(
        "xarray.tests",
        "xarray.ini",
        (),
        chosen=("test_dask",),
        needs=("pyarrow",),
    ),
    "xarray-over-dask-array": Suite(
        "xarray.tests",
        "xarray.ini",
        (),
        chosen=("test_coarsen", "test_dask", "test_groupby", "test_rolling", "test_weighted"),
        plugins=("tests.peers.registered",),
        needs=("dask_array",),
    ),
}  # fmt: skip


def modules(common: bool) -> list[object]:
    """Return parameters of tests: the name of a suite, and a common or any one of its modules."""
    return [
        pytest.param(
            name, module, id=f"{name}-{module}", marks=[pytest.mark.gpu] if suite.gpu else []
        )
        for name, suite in SUITES.items()
        for module in (suite.common + (() if common else suite.others()))
    ]
