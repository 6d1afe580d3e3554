"""The real libraries of the table, hundreds of uses in threads; netCDF4 in workers, too."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LIBRARIES = {
    "matplotlib": "matplotlib",
    "netCDF4": "netCDF4",
    "h5py": "h5py",
    "xarray": "netCDF4",
    "rasterio": "rasterio",
    "pyfftw": "pyfftw",
    "torch": "torch",
}
"""What is run, and the library that it needs."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.processes
def test_library_can_be_used_by_many_threads(library: str, tmp_path: Path) -> None:
    needed = LIBRARIES[library]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}, which the extra `test` does not install")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.threadsafe.real", library, tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "agg"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
