"""Settings of the environment by which the same tasks run as kernels in every test run."""

from __future__ import annotations

KERNELS = {
    "DASK_GPUSCHED__FUSION__COMPILE": "wait",
    # No test leaves a process behind; tests of the compile service stop their own.
    "DASK_GPUSCHED__FUSION__COMPILER": "process",
    # Most clusters of tests compute a few small tasks, or none.
    "DASK_GPUSCHED__FUSION__IMPORT_EARLY": "False",
}
"""For processes that are started without those of the test run; tests of tiers say otherwise."""
