"""When a chunk task waits for its kernels: on a stream of its own, and not on the null stream."""

from __future__ import annotations

from contextlib import nullcontext
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
