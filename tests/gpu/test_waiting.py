"""When a chunk task waits for its kernels: on a stream of its own, and not on the null stream."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests import emulated_gpu

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulated_gpu.requested(), reason="a driver that says what it waits for"),
]


@pytest.mark.parametrize("own", [False, True])
def test_who_has_the_null_stream_goes_on(own: bool) -> None:
    from tests.emulated_gpu import emulator

    x = da.from_array(cupy.arange(6000.0), chunks=2000, asarray=False)
    settings: dict[str, Any] = {"gpusched.fusion.minimum-elements": 0, "scheduler": "sync",
                                "gpusched.fusion.compile": "wait"}  # fmt: skip
    stream = cupy.cuda.Stream(non_blocking=True) if own else nullcontext()
    with dask.config.set(settings), gpusched.enable(), stream:
        (x * 3 + 1).persist()
        cupy.cuda.runtime.deviceSynchronize()
        gpusched.reset_statistics()
        found = (x * 3 + 1).persist()
        assert emulator.pending() == (0 if own else 3)
        assert gpusched.statistics().launches == 3
        np.testing.assert_array_equal(cupy.asnumpy(found.compute()), np.arange(6000.0) * 3 + 1)


def test_nobody_waits_for_runs_without_kernels() -> None:
    from tests.emulated_gpu import emulator

    x = da.from_array(cupy.arange(6000.0), chunks=2000, asarray=False)
    settings: dict[str, Any] = {"gpusched.fusion.minimum-elements": 0, "scheduler": "sync",
                                "gpusched.fusion.compile": "off"}  # fmt: skip
    with dask.config.set(settings), gpusched.enable():
        (x * 5 + 1).persist()
        cupy.cuda.runtime.deviceSynchronize()
        gpusched.reset_statistics()
        found = (x * 5 + 1).persist()
        assert emulator.pending() > 0
        assert gpusched.statistics().unfused_tasks == 3
        np.testing.assert_array_equal(cupy.asnumpy(found.compute()), np.arange(6000.0) * 5 + 1)
        # The next run finds that they have ended.
        before = gpusched.statistics().unfused_seconds
        (x * 5 + 1).persist()
        assert gpusched.statistics().unfused_seconds > before


FIRST = """
import sys
import cupy
import dask, dask.array as da
import gpusched

dask.config.set({{"gpusched.fusion.compile": "{compile}", "gpusched.fusion.minimum-elements": 0}})
gpusched.enable()
early = "cuda.core" in sys.modules
x = da.from_array(cupy.arange(6000.0), chunks=2000, asarray=False)
(x * 7 + 1).compute(scheduler="sync")
print(early, "cuda.core" in sys.modules, gpusched.statistics().launches)
"""


@pytest.mark.processes
def test_what_launches_kernels_is_imported_where_there_are_some(tmp_path: Path) -> None:
    def first(compilation: str) -> str:
        command = [sys.executable, "-c", FIRST.format(compile=compilation)]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path),
                                    "DASK_GPUSCHED__FUSION__IMPORT_EARLY": "True"}  # fmt: skip
        found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return found.stdout.strip()

    assert first("off") == "False False 0"
    assert first("wait") == "False True 3"
    assert first("background") == "True True 3"
    for cubin in tmp_path.rglob("*.cubin"):  # No task compiles what has been damaged.
        cubin.write_bytes(cubin.read_bytes()[:-10])
    assert first("off") == "True True 0"
