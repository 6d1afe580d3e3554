"""The benchmarks' programs on three front ends: equal kernels, launches and tasks, or why not."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.programs import PROGRAMS
from tests.tiers import starts_processes

ROOT = Path(__file__).parents[2]

TREE = "joins results of ten chunks at once, where dask joins four, and the results of these"
SOURCE = "transposes arrays in memory as one before it cuts them into chunks: one task more"
DIFFERENT = {
    "anomaly-no-flox": "joins the days' means to chunks, where dask cuts chunks into days",
    "group-mean": SOURCE,
    "group-std": SOURCE,
    "group-max": SOURCE,
    "resample-mean": "has chunks of whole months from the start, as it cuts arrays in memory so",
    "rolling-mean": "reduces windows of whole chunks: dask cuts these into pieces",
    "rolling-max": "reduces windows of whole chunks: dask cuts these into pieces",
    "rolling-std": "has a function of its own for variances of windows, which joins no moments",
    "windows": "makes the zeros instead of NaN in tasks of their own, since they have four axes",
    "zones": "computes the only chunk that it cuts an array in memory into for flox",
    "detrended": "keeps a view of the array in memory as a task",
    "interpolated": TREE,
    "correlation": TREE,
    "quantile": "moves the axis of an array in memory before it cuts it into chunks",
    "histogram": "gives the edges of equal bins, where dask gives how many there are",
    "histogram-2d": TREE,
    "bincount-computed": TREE,
    "calibration": TREE,
    "ndvi": TREE,
    "float16": TREE,
    "numba": TREE,
}
"""What dask-array 0.7.1 does otherwise than dask 2026.8: other graphs, whose kernels are others, or
are run by more or fewer tasks."""

OTHER_KERNELS = {
    "anomaly-no-flox", "resample-mean", "rolling-mean", "rolling-max", "rolling-std", "windows",
    "histogram",
}  # fmt: skip
"""Those of them whose kernels differ, too, by what they compute."""

MISSING = {
    "dask-array": {"anomaly", "anomaly-variance", "standardised-by-month"},
    "expressions": set(PROGRAMS) - {"calibration", "float16", "complex", "numba"},
}
"""Programs that front ends do not have, with gpusched or without: most functions of dask.array are
missing in its expressions, and flox mixes arrays of dask-array with dask's."""


@pytest.fixture(scope="module")
@starts_processes
def counts() -> Any:
    """Give a function that returns what the programs would run with a front end."""
    pytest.importorskip("dask_array")
    pytest.importorskip("flox")
    pytest.importorskip("xarray")

    @cache
    def explained(front_end: str) -> dict[str, Any]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.frontends", front_end, "explain"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return explained


@pytest.mark.parametrize("front_end", MISSING)
def test_kernels_launches_and_tasks(front_end: str, counts: Any) -> None:
    dask_s, found = counts("dask.array"), counts(front_end)
    assert {name for name in found if "missing" in found[name]} == MISSING[front_end]
    known = [name for name in PROGRAMS if name not in MISSING[front_end]]
    different = {name for name in known if found[name] != dask_s[name]}
    assert different == DIFFERENT.keys() - MISSING[front_end]
    other = {name for name in known if found[name]["kernels"] != dask_s[name]["kernels"]}
    assert other == OTHER_KERNELS - MISSING[front_end]
    assert all(found[name]["launches"] for name in known)
