"""The tests of GPU libraries with emulated ones, whose arrays are in host memory.

They run in a process of their own, because distributed keeps what types it has seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest

from gpusched.serialization.arrays.device import WithoutGpuError, is_installed
from tests.serialization.arrays.sending import received

FOLDER = Path(__file__).parent
EMULATED = FOLDER / "emulated"


def run(*arguments: str) -> str:
    """Run Python where the emulated libraries are the ones that are found."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=FOLDER.parents[2],
        env={**os.environ, "PYTHONPATH": str(EMULATED)},
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_arrays_on_gpus() -> None:
    files = [str(FOLDER / f"test_{name}.py") for name in ("cupy", "interface", "numba_cuda")]
    # The configuration skips what is marked as in need of a GPU.
    told = run("-m", "pytest", "-q", "-p", "numba_gpu", "--noconftest", *files)
    assert " passed" in told
    assert "skipped" not in told


MESSAGE = """
import numpy as np, cupy
from cupyx.scipy import sparse
from tests.serialization.arrays.sending import frames_of
array = cupy.asarray(np.asfortranarray(np.arange(6).reshape(2, 3)))
part = cupy.asarray(np.arange(2))
value = {"array": array, "matrix": sparse.coo_matrix((part, (part, part)), shape=(2, 2))}["%s"]
print([bytes(frame) for frame in frames_of(value)])
"""


@pytest.mark.parametrize("name", ["array", "matrix"])
@pytest.mark.skipif(is_installed("cupy"), reason="CuPy is installed")
@pytest.mark.processes
def test_arrays_that_arrive_without_cupy_are_errors_or_host_arrays(name: str) -> None:
    frames = eval(run("-c", MESSAGE % name))
    with pytest.raises(WithoutGpuError, match="CuPy is not installed"):
        received(frames)
    with dask.config.set({"gpusched.serialization.without-gpu": "host"}):
        found = received(frames)
    if name == "matrix":
        assert found.toarray().tolist() == [[0, 0], [0, 1]]
    else:
        assert found.strides == (8, 16)
        assert np.array_equal(found, [[0, 1, 2], [3, 4, 5]])
