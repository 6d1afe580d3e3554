"""The emulated GPU does what makes it worth having: it shows what a host's memory would hide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests import emulated_gpu
from tests.emulated_gpu import emulator

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulated_gpu.active, reason="is about the emulated GPU: make test-gpu"),
]


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    yield
    emulator.heal()
    cupy.cuda.Device().synchronize()


def in_a_process(code: str, modes: str = "1", **environment: str) -> Any:
    """Return what a program on an emulated GPU of other modes prints, as JSON."""
    variables = {**os.environ, emulated_gpu.SWITCH: modes, **environment}
    done = subprocess.run(
        [sys.executable, "-c", f"import json, cupy, numpy as np\n{code}"],
        capture_output=True,
        text=True,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_runs_before_somebody_waits() -> None:
    x = cupy.arange(8, dtype="f4")
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = x + 1
        assert emulator.pending() > 0
        with cupy.cuda.Stream(non_blocking=True) as other:
            assert np.isnan(y.get(stream=other)).all()  # Fresh memory: nobody waited for `stream`.
        stream.synchronize()
        assert y.get(stream=stream).tolist() == list(range(1, 9))


def test_kernels_convert_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusched.backends.devices import cuda
    from tests.record.recording import BACKENDS, record

    monkeypatch.setitem(BACKENDS, "cpu", cuda().compile)
    x = np.asarray([0.1, -2.5, 65504, 7e-8, np.inf], "f2")
    functions = lambda a: (a * 2 - a, a.astype("f4"), a.astype("f8").astype("f2"))  # noqa: E731
    recorded = record(functions, cupy.asarray(x), device=cuda())
    with np.errstate(all="ignore"):
        for found, expected in zip(recorded.result, functions(x), strict=True):
            np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_smaller_of_a_number_and_a_nan_is_the_number(dtype: str) -> None:
    values = cupy.asarray([np.nan, 3, np.nan, 5, np.nan], dtype)
    assert (float(cupy.nanmin(values)), float(cupy.nanmax(values))) == (3, 5)


def test_an_event_orders_two_streams() -> None:
    x = cupy.arange(8, dtype="f4")
    done = cupy.cuda.Stream.null.record()
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    first.wait_event(done)
    with first:
        y = x + 1
        done = first.record()
    second.wait_event(done)
    with second:
        assert (y * 2).get(stream=second).tolist() == list(range(2, 18, 2))


def test_the_null_stream_waits_for_blocking_streams_alone() -> None:
    blocking, other = cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(4)
    cupy.cuda.Device().synchronize()
    with blocking:
        y = x + 1
    with other:
        z = x + 1
    assert y.get().tolist() == [1, 1, 1, 1]
    assert np.isnan(z.get()).all()
    other.synchronize()


def test_released_memory_is_overwritten() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    address = cupy.cuda.runtime.malloc(1024)
    cupy.cuda.runtime.memset(address, 1, 1024)
    cupy.cuda.runtime.free(address)
    again = cupy.cuda.runtime.malloc(1024)
    host = np.empty(1024, "u1")
    cupy.cuda.runtime.memcpy(host.ctypes.data, again, 1024, 2)
    cupy.cuda.runtime.free(again)
    assert set(host.tolist()) == {0xFF}


def test_copies_beyond_an_allocation_are_refused() -> None:
    address = cupy.cuda.runtime.malloc(512)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="InvalidValue"):
        cupy.cuda.runtime.memcpy(np.empty(1024, "u1").ctypes.data, address, 1024, 2)
    cupy.cuda.runtime.free(address)


def test_an_allocation_fails_when_it_is_to() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    emulator.fail_allocation(2)
    x = cupy.empty(1 << 20, "u1")
    # CuPy's pool frees what it keeps and asks again.
    y = cupy.empty(1 << 21, "u1")
    assert x.nbytes < y.nbytes
    emulator.fail_allocation(1)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="MemoryAllocation"):
        cupy.cuda.runtime.malloc(512)


def test_an_illegal_address_ends_the_context() -> None:
    x = cupy.zeros(8)
    cupy.cuda.Device().synchronize()
    emulator.fail_launch(1)
    y = x + 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        cupy.cuda.Device().synchronize()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        y.get()


def test_a_lost_device_ends_the_context_and_nvml_says_so() -> None:
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceGetMemoryInfo(card)
    emulator.lose_device(2)
    y = cupy.ones(8) + 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Unknown"):
        cupy.cuda.Device().synchronize()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Unknown"):
        y.get()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetMemoryInfo(card)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"graphLaunch.*cupy_runtime"):
        cupy.cuda.runtime.graphLaunch(0, 0)


def test_lanes_of_one_warp_wait_without_the_others() -> None:
    # Masks and selections: scans in which the first warp alone exchanges values.
    values = np.random.default_rng(0).standard_normal(100_000)
    x = cupy.asarray(values)
    assert np.array_equal(x[x > 0].get(), values[values > 0])
    assert np.allclose(cupy.cumsum(x).get(), np.cumsum(values))
    pairs = values[:600].view("c16").reshape(3, 100)
    assert np.allclose(cupy.cumsum(cupy.asarray(pairs), axis=1).get(), np.cumsum(pairs, axis=1))


def test_several_devices_have_memory_and_streams_of_their_own() -> None:
    found = in_a_process(
        """
from tests.emulated_gpu import emulator
before = [emulator.in_use(k) for k in range(3)]
with cupy.cuda.Device(2):
    x = cupy.arange(1000.0) + 1
    there, here = emulator.in_use(2) - before[2], emulator.in_use(0) - before[0]
y = cupy.asarray(x)
cards = [cupy.cuda.runtime.getDeviceProperties(k)["uuid"] for k in range(3)]
print(json.dumps([x.device.id, y.device.id, float(y.sum()), there >= 8000, here, len(set(cards))]))
""",
        "devices=3",
    )
    assert found == [2, 0, 500500.0, True, 0, 3]


@pytest.mark.parametrize("visible", ["1", "GPU-02234567-89ab-cdef-0123-456789abcdef"])
def test_a_process_sees_the_devices_that_it_is_given(visible: str) -> None:
    code = "print(json.dumps([cupy.cuda.runtime.getDeviceCount(), cupy.cuda.Device().pci_bus_id]))"
    found = in_a_process(code, "devices=3", CUDA_VISIBLE_DEVICES=visible)
    assert found == [1, "0000:18:00.0"]


SEEN = """
from cupy.cuda import runtime
properties = runtime.getDeviceProperties(0)
print(json.dumps([runtime.getDeviceCount(), properties["uuid"].hex(),
                  properties["totalGlobalMem"], float((cupy.arange(5.0) * 2).sum())]))
"""


@pytest.mark.processes
@pytest.mark.parametrize("chosen", [0, 4])
def test_a_process_sees_one_instance_of_a_divided_gpu(chosen: int) -> None:
    modes = "devices=2,mig=3,memory=6000000"
    listed = in_a_process(
        "from gpusched.workers import nvml\n"
        "print(json.dumps([[c.uuid, c.divided, c.parts] for c in nvml.cards()]))",
        modes,
    )
    assert [(divided, len(parts)) for _, divided, parts in listed] == [(True, 3)] * 2
    parts = [part for _, _, found in listed for part in found]
    assert len(set(parts)) == 6
    part = parts[chosen]
    count, uuid, memory, total = in_a_process(SEEN, modes, CUDA_VISIBLE_DEVICES=part)
    assert (count, memory, total) == (1, 2_000_000, 20.0)
    assert uuid == part.removeprefix("MIG-").replace("-", "")


def test_copies_take_as_long_as_they_are_to() -> None:
    values = np.zeros(1_000_000, np.uint8)
    x = cupy.empty(values.shape, np.uint8)
    begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
    emulator.set_copy_rate(20_000_000)
    try:
        begun.record()
        x.set(values)
        ended.record()
        ended.synchronize()
    finally:
        emulator.set_copy_rate(0)
    assert cupy.cuda.get_elapsed_time(begun, ended) >= 50  # Milliseconds.


def test_nvml_reports_what_the_process_uses() -> None:
    from gpusched.workers import nvml
    from gpusched.workers.pinning import visible_uuids

    uuid = f"GPU-{visible_uuids()[0]}"
    before = nvml.sample(uuid)
    x = cupy.zeros(1 << 22)
    for _ in range(20):
        x += 1
    cupy.cuda.Device().synchronize()
    after = nvml.sample(uuid)
    assert after.memory_used - before.memory_used >= x.nbytes
    assert 0 < after.utilization <= 100


def test_no_code_of_the_host_reads_device_memory() -> None:
    code = """
x = cupy.asarray(np.arange(1000.0))
y = cupy.sort(x[::-1] * 2)
print(json.dumps([float(y.sum()), float(y[1])]))
"""
    assert in_a_process(code, "protect") == [999000.0, 2.0]


def test_host_code_that_reads_device_memory_crashes() -> None:
    code = """
import ctypes
print(json.dumps(ctypes.c_float.from_address(cupy.ones(8, "f4").data.ptr).value), flush=True)
"""
    assert np.isnan(in_a_process(code))  # Nothing has run yet.
    with pytest.raises(AssertionError):
        in_a_process(code, "protect")


IN_TURN = """
def run(overtaken):
    x = cupy.zeros(8)
    cupy.cuda.Device().synchronize()
    one, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    with one:
        x += 1
        done = one.record() if overtaken else None
        x += 10  # Whoever waits for `done` reads before that, or after it.
        done = done or one.record()
    with other:
        other.wait_event(done)
        return float((x + 0).get(stream=other)[0])
print(json.dumps([sorted({run(overtaken) for _ in range(20)}) for overtaken in (True, False)]))
"""


def test_streams_that_do_not_wait_overtake_each_other() -> None:
    assert in_a_process(IN_TURN) == [[1.0], [11.0]]
    for seed in (1, 2):
        assert in_a_process(IN_TURN, f"shuffle={seed}") == [[1.0, 11.0], [11.0]]


LAST = """
last = cupy.RawKernel(r'''
extern "C" __global__ void last(int *block, int *thread) {
  block[0] = blockIdx.x;
  if (blockIdx.x == 0) thread[0] = threadIdx.x;
}''', "last")
def run():
    found = cupy.zeros(2, "i4")
    last((40,), (32,), (found[:1], found[1:]))
    return found.get().tolist()
blocks, threads = zip(*[run() for _ in range(8)])
print(json.dumps([sorted(set(blocks)), sorted(set(threads))]))
"""


def test_blocks_and_threads_come_in_any_order() -> None:
    assert in_a_process(LAST) == [[39], [31]]
    assert in_a_process(LAST, "backwards") == [[0], [0]]
    blocks, threads = in_a_process(LAST, "shuffle=3")
    assert len(blocks) > 2
    assert len(threads) > 2


@pytest.mark.parametrize("modes", ["eager", "backwards", "shuffle=1", "memory=1048576"])
def test_modes(modes: str) -> None:
    code = """
x = cupy.arange(10_000, dtype="f4").reshape(100, 100)
try:
    cupy.empty(1 << 21, "u1")
    fits = True
except cupy.cuda.memory.OutOfMemoryError:
    fits = False
print(json.dumps([float((x * 2).sum()), x.T.max(axis=0).get().tolist()[:2], fits]))
"""
    want = [float(np.arange(10_000).sum() * 2), [99.0, 199.0], "memory" not in modes]
    assert in_a_process(code, modes) == want


@pytest.mark.parametrize("dtype", ["i4", "f2", "f4", "f8", "c8", "c16"])
def test_products_of_matrices(dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, s).astype(dtype) for s in ((3, 4, 5), (3, 5, 2)))
    x, y = cupy.asarray(a), cupy.asarray(b)
    for found, expected in [
        (x @ y, a @ b),
        (x[0] @ y[0], a[0] @ b[0]),
        (x[0].T @ x[0].conj(), a[0].T @ a[0].conj()),
        (x[0] @ y[0, :, 0], a[0] @ b[0, :, 0]),
        (cupy.vdot(x[0, 0], x[0, 1]), np.vdot(a[0, 0], a[0, 1])),
        (cupy.tensordot(x, y, ([2], [1])), np.tensordot(a, b, ([2], [1]))),
    ]:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.get(), expected)


def test_products_wait_for_their_operands() -> None:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.arange(16.0).reshape(4, 4) + 1
        found = x @ x
        assert emulator.pending() > 0
        stream.synchronize()
    host = np.arange(16.0).reshape(4, 4) + 1
    np.testing.assert_array_equal(found.get(), host @ host)


DTYPES = ["f4", "f8", "c8", "c16"]


def numbers(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    found = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (found if dtype.startswith("c") else found.real).astype(dtype)


def close(found: Any, expected: Any) -> None:
    found, single = cupy.asnumpy(found), np.dtype(found.dtype).char in "fF"
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 if single else 1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fourier_transforms(dtype: str) -> None:
    names = ["fft", "ifft", "fft2", "ifftn"]
    names += ["irfft", "irfftn", "hfft"] if dtype.startswith("c") else ["rfft", "rfftn", "ihfft"]
    for shape in ((3, 1, 2), (2, 3, 31), (4, 6, 20)):
        x = numbers(dtype, *shape)
        for name in names:
            found = getattr(cupy.fft, name)(cupy.asarray(x))
            expected = getattr(np.fft, name)(x)
            assert found.dtype == expected.dtype
            close(found, expected)
        close(cupy.fft.fft(cupy.asarray(x)[::-1], axis=0), np.fft.fft(x[::-1], axis=0))


def test_transforms_wait_for_their_operands() -> None:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        found = cupy.fft.fft(cupy.arange(16.0) + 1)
        assert emulator.pending() > 0
        stream.synchronize()
    close(found, np.fft.fft(np.arange(16.0) + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6)], ids=str)
def test_factorisations(shape: tuple[int, int], dtype: str) -> None:
    many = numbers(dtype, 2, *shape)
    for x in (many[0], many):
        a = cupy.asarray(x)
        q, r = cupy.linalg.qr(a)
        close(q @ r, x)
        close(q.conj().swapaxes(-1, -2) @ q, np.eye(min(shape)) + 0 * (q @ r)[..., :1, :1].get())
        u, s, v = cupy.linalg.svd(a, full_matrices=False)
        close(s, np.linalg.svd(x, compute_uv=False))
        close((u * s[..., None, :]) @ v, x)
    u, s, v = cupy.linalg.svd(cupy.asarray(many[0]))
    assert (u.shape, v.shape) == ((shape[0],) * 2, (shape[1],) * 2)
    close(cupy.linalg.pinv(cupy.asarray(many[0])), np.linalg.pinv(many[0]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_of_equations_and_eigenvalues(dtype: str) -> None:
    from cupyx.scipy.linalg import lu, solve_triangular

    x, right = numbers(dtype, 2, 5, 5), numbers(dtype, 2, 5, 3)
    h = x @ x.conj().swapaxes(-1, -2) + np.eye(5, dtype=dtype)
    for k in (0, slice(None)):
        a, b, c = (cupy.asarray(each[k]) for each in (x, right, h))
        close(a @ cupy.linalg.solve(a, b), right[k])
        close(cupy.linalg.inv(c), np.linalg.inv(h[k]))
        close(cupy.linalg.det(a), np.linalg.det(x[k]))
        close(cupy.linalg.cholesky(c), np.linalg.cholesky(h[k]))
        close(cupy.linalg.eigvalsh(c), np.linalg.eigvalsh(h[k]))
    values, vectors = cupy.linalg.eigh(cupy.asarray(h[0]))
    close(cupy.asarray(h[0]) @ vectors, (vectors * values).get())
    p, lower, upper = lu(cupy.asarray(x[0]))
    close(p.astype(dtype) @ lower @ upper, x[0])
    for trans in (0, 1, 2):
        form = [upper, upper.T, upper.conj().T][trans]
        close(form @ solve_triangular(upper, cupy.asarray(right[0]), trans=trans), right[0])


@pytest.mark.parametrize("make", [cupy.random.RandomState, cupy.random.default_rng])
def test_random_numbers_have_their_distributions_and_depend_on_the_seed(make: Any) -> None:
    def drawn(seed: int) -> np.ndarray:
        generator = make(seed)
        return np.array([generator.standard_normal(size=4000).get(),
                         generator.exponential(2.0, size=4000).get(),
                         generator.poisson(3.0, size=4000).get()])  # fmt: skip

    first, again, other = drawn(3), drawn(3), drawn(4)
    np.testing.assert_array_equal(first, again)
    assert (first[:2] != other[:2]).all()
    np.testing.assert_allclose(first.mean(axis=1), [0, 2, 3], atol=0.15)
    np.testing.assert_allclose(first.std(axis=1), [1, 2, 3**0.5], atol=0.15)


def test_headers_are_found_without_a_process_and_without_a_toolkit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cuda.pathfinder._headers import find_nvidia_headers

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    locate = find_nvidia_headers.locate_nvidia_header_directory.__wrapped__
    assert locate("cudart") is not None
    monkeypatch.setattr(find_nvidia_headers, "_locate_in_anchor_layout", lambda *_: None)
    assert locate("cudart").abs_path == str(emulated_gpu.build.SOURCE)


OWNER = """
import sys
x = cupy.arange(1000, dtype="f8")
cupy.cuda.Device().synchronize()
print(json.dumps([cupy.cuda.runtime.ipcGetMemHandle(x.data.ptr).hex(), x.data.ptr]), flush=True)
sys.stdin.readline()
x[:] = -1
cupy.cuda.Device().synchronize()
print(json.dumps("written"), flush=True)
sys.stdin.readline()
"""


def test_another_process_sees_the_memory_until_it_is_closed() -> None:
    code = f"import json, cupy\n{OWNER}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        handle, _ = json.loads(owner.stdout.readline())
        runtime = cupy.cuda.runtime
        address = runtime.ipcOpenMemHandle(bytes.fromhex(handle))
        assert runtime.ipcOpenMemHandle(bytes.fromhex(handle)) == address
        memory = cupy.cuda.UnownedMemory(address, 8000, None)
        theirs = cupy.ndarray(1000, "f8", cupy.cuda.MemoryPointer(memory, 0))
        np.testing.assert_array_equal(theirs.get(), np.arange(1000.0))
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert json.loads(owner.stdout.readline()) == "written"
        assert (theirs.get() == -1).all()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="InvalidValue"):
            runtime.free(address)
        runtime.ipcCloseMemHandle(address)
        assert emulator.imported() > 0
        runtime.ipcCloseMemHandle(address)
        assert emulator.imported() == 0
        owner.stdin.close()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="InvalidValue"):
        runtime.ipcOpenMemHandle(bytes.fromhex(handle))


def test_a_process_does_not_open_its_own_memory() -> None:
    handle = cupy.cuda.runtime.ipcGetMemHandle(cupy.zeros(4).data.ptr)
    # The runtime's name for the driver's error depends on its version.
    named = "InvalidContext|DeviceUninitialized"
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=named):
        cupy.cuda.runtime.ipcOpenMemHandle(handle)


def test_memory_of_a_pool_of_the_drivers_has_no_handle() -> None:
    address = cupy.cuda.runtime.mallocAsync(64, 0)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="InvalidValue"):
        cupy.cuda.runtime.ipcGetMemHandle(address)
    cupy.cuda.runtime.freeAsync(address, 0)
