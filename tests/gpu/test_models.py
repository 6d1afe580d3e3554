"""Chunks on a GPU as models of other libraries are lent them.

The libraries' builds for CPUs take no memory of a GPU: with those for GPUs, the step `models` of
`make gpu-report` calls each on chunks of every layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.models.function_models import Function
from gpusched.models.views import lendable
from tests.placing.gpuworker import GpuWorker, gpu_worker

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = pytest.mark.gpu

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "reversed": lambda x: x[:, ::-1],
    "every other": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "broadcast": lambda x: np.broadcast_to(x[:1], (5, *x[0].shape)),
    "a part": lambda x: x[2:5, 1:3],
    "rows": lambda x: x[2:5],
    "scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "c8", "?"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_lent_is_compact_and_has_the_values(name: str, dtype: str) -> None:
    values = (np.arange(64).reshape(8, 8) % 7).astype(dtype)
    chunk = LAYOUTS[name](cupy.asarray(values))
    lent = lendable(chunk)
    assert lent.flags.c_contiguous
    taken = cupy.from_dlpack(lent)
    assert np.array_equal(taken.get(), LAYOUTS[name](values))
    assert (lent is chunk) == chunk.flags.c_contiguous


def test_dtypes_that_dlpack_lacks_are_refused() -> None:
    with pytest.raises(TypeError, match="DLPack"):
        lendable(np.array(["a"]))


@pytest.fixture(scope="module")
def worker() -> Iterator[GpuWorker]:
    with gpu_worker() as found:
        yield found


SHAPE = (512, 256)
SEEN: list[type] = []
"""What models were given, in this process."""


def model(rows: Any) -> Any:
    SEEN.append(type(rows))
    return rows * 3 - rows[:, :1]


def chunks() -> da.Array:
    values = np.random.default_rng(1).standard_normal(SHAPE)
    return da.from_array(values, chunks=(128, 256)) * 2 + 1


def applied(x: da.Array) -> da.Array:
    SEEN.clear()
    found: da.Array = gpusched.apply(model, x, meta=np.empty((0, SHAPE[1])))
    return found


def test_models_on_the_gpu_get_chunks_as_they_are_there(
    worker: GpuWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Function, "on_gpu", True)
    before = gpusched.statistics()
    with gpusched.enable():
        found = (applied(chunks()) - 1).compute(scheduler=worker.get)
    after = gpusched.statistics()
    with gpusched.disable():
        plain = chunks().compute(scheduler="sync")
    np.testing.assert_allclose(found, plain * 3 - plain[:, :1] - 1, rtol=1e-12)
    assert set(SEEN) == {cupy.ndarray}
    assert after.bytes_to_device - before.bytes_to_device == plain.nbytes
    assert after.bytes_to_host - before.bytes_to_host == found.nbytes


def test_models_of_kept_chunks_get_them_as_they_are_there(
    worker: GpuWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Function, "on_gpu", True)
    with gpusched.enable():
        x = chunks().rechunk((256, 256))  # Whose chunks are results of tasks of their own.
        y = applied(x) + x.sum(axis=1, keepdims=True)
        found = y.compute(scheduler=worker.get)
    assert set(SEEN) == {cupy.ndarray}
    with gpusched.disable():
        plain = x.compute(scheduler="sync")
    expected = plain * 3 - plain[:, :1] + plain.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_models_elsewhere_get_numpy_arrays(worker: GpuWorker) -> None:
    with gpusched.enable():
        applied(chunks()).compute(scheduler=worker.get)
    assert set(SEEN) == {np.ndarray}
