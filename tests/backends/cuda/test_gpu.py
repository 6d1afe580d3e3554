"""The same programs on a real GPU, and launches on CuPy's arrays and streams."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import numpy as np
import pytest

from gpusched.emit.operations import OPERATIONS
from tests.backends.cuda.cases import ELEMENTWISE, REDUCTIONS, Case, numbers
from tests.backends.cuda.runtimes import GpuHostRuntime
from tests.emit.test_operations import CASES, SIGNED_ZEROS_FREE, fuses, operands, ufunc_of
from tests.record import recording

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runtime() -> Iterator[GpuHostRuntime]:
    found = GpuHostRuntime()
    recording.BACKENDS["gpu"] = found.get
    yield found
    del recording.BACKENDS["gpu"]


@pytest.mark.parametrize("case", [*ELEMENTWISE, *REDUCTIONS], ids=lambda case: case.name)
def test_agrees_with_numpy(case: Case, runtime: GpuHostRuntime) -> None:
    before = len(runtime.launches)
    recording.check(case.function, *case.arrays(), backend="gpu", ulp=case.ulp)
    assert len(runtime.launches) > before


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in CASES if fuses(n, d)])
def test_operation_agrees_with_numpy(name: str, dtype: str, runtime: GpuHostRuntime) -> None:
    ufunc, arrays = ufunc_of(name), operands(name, dtype)
    if name == "frexp":
        arrays = [a[np.isfinite(a)] for a in arrays]  # C leaves the exponent of inf undefined
    if name in SIGNED_ZEROS_FREE and np.dtype(dtype).kind == "f":
        keep = (arrays[0] != 0) | (arrays[1] != 0)
        arrays = [a[keep] for a in arrays]
    ulp = OPERATIONS[name].ulp
    recording.check(lambda *a: ufunc(*a), *arrays, backend="gpu", ulp=ulp)


def test_long_sum_is_the_same_each_time(runtime: GpuHostRuntime) -> None:
    array = np.random.default_rng(0).standard_normal(4_000_003, dtype="float32")
    results = {
        float(recording.record(lambda a: (a * a).sum(), array, backend="gpu").result)
        for _ in range(5)
    }
    assert len(results) == 1
    assert results.pop() == pytest.approx(float((array.astype("f8") ** 2).sum()), rel=1e-6)


def test_cupy_arrays_on_streams_of_several_threads() -> None:
    import cupy

    from gpusched.backends.cuda import runtime as cuda

    kernels = []

    def remember(kernel):  # type: ignore[no-untyped-def]
        kernels.append(kernel)
        return recording.reference(kernel)

    recording.BACKENDS["remember"] = remember
    recording.record(lambda a, b: a * b + a, numbers(8), numbers(8), backend="remember")
    handle = cuda.handle(kernels[0])
    assert cuda.handle(kernels[0]) is handle
    add = handle.call
    wrong = []

    def work(seed: int) -> None:
        a, b = numbers(100_003, seed=seed), numbers(100_003, seed=seed + 100)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x, y = cupy.asarray(a), cupy.asarray(b)
            for _ in range(20):
                out = cupy.full(a.shape, np.nan, "float32")
                add(x, y, out, a.size)
            stream.synchronize()
            if not np.array_equal(out.get(stream=stream), a * b + a):
                wrong.append(seed)

    threads = [Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
