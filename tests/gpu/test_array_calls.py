"""CuPy's calls in place of kernels: each operation and dtype, at the edges of arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import emulated_gpu
from tests.emit import test_operations as operations
from tests.record import recording

pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from tests.placing.gpuworker import gpu_worker

    with gpu_worker() as worker:
        monkeypatch.setitem(recording.PLACES, "gpu", worker.place())
        if not emulated_gpu.active:  # A card takes subnormal numbers of float32 for zero in CuPy's.
            monkeypatch.setattr(operations, "FLOATS", [x for x in operations.FLOATS if x != 1e-40])
        yield


@pytest.mark.parametrize("name", [name for name in operations.NAMES if name != "nextafter"])
def test_operation_agrees_with_numpy(name: str) -> None:
    for dtype in operations.DTYPES:
        if operations.accepts(name, dtype) and operations.fuses(name, dtype):
            operations.agrees(name, dtype, "arrays", errors="ignore")


@pytest.mark.parametrize("source", operations.DTYPES)
def test_astype_agrees_with_numpy(source: str) -> None:
    for target in operations.DTYPES:
        operations.test_astype_agrees_with_numpy(source, target, "arrays")
