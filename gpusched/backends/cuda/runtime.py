"""The GPU of this process: compiles for it, and launches on the stream CuPy uses in this thread.

What launches, `cuda.core`, takes 0.1 to 0.2 s to import: only a process that has a kernel does so.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from gpusched import cudadriver, forks
from gpusched.backends.cuda import compiler
from gpusched.backends.cuda.compiler import (
    Compiled,
    CompilerMissingError,
    compile_kernel,
    require,
)
from gpusched.backends.cuda.geometry import Geometry
from gpusched.backends.cuda.kernel_launch import CudaKernel
from gpusched.emit import generate, skeleton
from gpusched.emit.kernel import EXACT, Kernel
from gpusched.emit.parsing import register
from gpusched.emit.skeleton.source_lines import threads
from gpusched.store import kernelfiles, tuned
from gpusched.store.emitters import CUDA, toolchain
from gpusched.store.handles import CompiledKernel, Handle, KernelStore
from gpusched.store.kernelfiles import OtherToolchainError
from gpusched.store.service import client as service
from gpusched.store.sharing import Wanted, known, obtain


class NoDeviceError(RuntimeError):
    """There is no NVIDIA GPU that this process can use; the message says what is missing."""


@lru_cache(maxsize=1)
def check_driver() -> None:
    """Raise `NoDeviceError` unless a driver and a device are there.

    Asked before anything of `cuda.core` is: without a driver its first call fails, and the next
    one never returns.
    """
    try:
        driver = cudadriver.load()
    except OSError as error:
        raise NoDeviceError(
            "no NVIDIA driver: libcuda.so.1 was not found. Install the driver, or in a container "
            "start it with the GPU (docker: --gpus all)"
        ) from error
    status, devices = cudadriver.start(driver)
    if not devices:
        raise NoDeviceError(
            f"the NVIDIA driver finds no GPU (cuInit says {status}, {devices} devices): check "
            "nvidia-smi and the variable CUDA_VISIBLE_DEVICES"
        )


def wanted(name: str, text: str, cc: tuple[int, int], mathematics: str = EXACT) -> Wanted:
    """Return what the cubin of a source text is known by, and where it is kept."""
    parts = ("cuda", toolchain(CUDA), f"sm_{cc[0]}{cc[1]}", mathematics, text)
    key = hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()
    root = kernelfiles.directory()
    path = root and root / "cubins" / toolchain(CUDA) / f"{name}-sm_{cc[0]}{cc[1]}-{key}.cubin"
    return Wanted(name, key, path)


def compile_for(kernel: Kernel, cc: tuple[int, int]) -> Compiled:
    """Compile a kernel for GPUs of one compute capability, whether or not one is here."""
    return _build(kernel, skeleton.source(kernel), cc)


def code_for(kernel: Kernel, cc: tuple[int, int], key: str) -> bytes:
    """Return a kernel's cubin under the key that another process has for it.

    Parameters
    ----------
    kernel
        With all its options.
    cc
        Compute capability.
    key
        Of the cubin, as that process has it: of its versions, too.

    Raises
    ------
    gpusched.store.kernelfiles.OtherToolchainError
        If this process would make another one.
    """
    text = skeleton.source(kernel)
    if wanted(kernel.name, text, cc, kernel.mathematics).key != key:
        raise OtherToolchainError("another version of gpusched, Python or a compiler")
    return _build(kernel, text, cc).cubin


def _build(kernel: Kernel, text: str, cc: tuple[int, int]) -> Compiled:
    return compile_text(kernel, text, register(f"<gpusched cuda {kernel.name}>", text), cc)


def compile_text(kernel: Kernel, text: str, filename: str, cc: tuple[int, int]) -> Compiled:
    """Compile a source text of a kernel, kept in a file, for GPUs that need not be here."""
    require()
    from gpusched.backends.cuda import bindings

    function = bindings.load(text, filename, kernel.name, generate.defined_functions(kernel))
    exact = kernel.mathematics == EXACT
    return compile_kernel(function, bindings.signature(kernel), cc, threads(kernel),
                          compiler.EXACT if exact else compiler.FAST)  # fmt: skip


class _Core(NamedTuple):
    """What launches kernels."""

    launch: Any
    code: Any
    """Loads a cubin."""
    stream: Any
    """Returns a stream by CuPy's handle."""
    defaults: dict[int, Any]
    """Streams by CuPy's handles of them that are no real ones."""


@lru_cache(maxsize=1)
def _core() -> _Core:
    check_driver()
    try:
        import cuda.core as core
    except ImportError as error:
        raise CompilerMissingError(error) from error
    with compiler.explained():
        defaults = {0: core.LEGACY_DEFAULT_STREAM, 2: core.PER_THREAD_DEFAULT_STREAM}
        return _Core(core.launch, core.ObjectCode.from_cubin, core.Stream.from_handle, defaults)


def prepare() -> None:
    """Import what launches kernels, if there is a GPU and the package."""
    with suppress(NoDeviceError, CompilerMissingError, compiler.CompilerVersionError):
        _core()  # Who has a kernel to launch gets the error.


class GpuRuntime:
    """The current CuPy device.

    Notes
    -----
    Thread-safe.  A launch goes to the calling thread's current CuPy stream, from which CuPy also
    allocates, so that buffers are not used again before the kernels that read them are done.

    Raises
    ------
    NoDeviceError
        If there is no GPU.
    CompilerMissingError, gpusched.backends.cuda.compiler.CompilerVersionError
        If packages of the extra are missing, or are not the tested versions and differ; of those
        that compile and launch, when a kernel is wanted.
    """

    def __init__(self) -> None:
        check_driver()
        try:
            import cupy
        except ImportError as error:
            raise CompilerMissingError(error) from error
        self._cupy = cupy
        self._stream_of_thread = cupy.cuda.get_current_stream
        self._device = cupy.cuda.Device()
        self._threads = threading.local()
        self._streams: dict[int, Any] = {}
        capability = self._device.compute_capability
        self.cc = (int(capability[:-1]), int(capability[-1]))

    @cached_property
    def place(self) -> tuned.Place:
        """What is remembered of kernels here is found by."""
        properties = self._cupy.cuda.runtime.getDeviceProperties(self._device.id)
        name = properties["name"].decode() + f" sm_{self.cc[0]}{self.cc[1]}"
        return tuned.Place("cuda", name, toolchain(CUDA))

    def compile(self, kernel: Kernel) -> Any:
        """Return the loaded kernel."""
        self._device.use()
        text = skeleton.source(kernel)
        asked = wanted(kernel.name, text, self.cc, kernel.mathematics)

        def compiler() -> Callable[[], bytes]:
            return lambda: _build(kernel, text, self.cc).cubin

        def build() -> tuple[bytes, bytes | None]:
            cubin = service.made_by_anybody(kernel, asked, compiler, self.cc)
            assert cubin is not None
            return cubin, cubin

        cubin = obtain(asked, bytes, build)
        return _core().code(cubin, name=kernel.name).get_kernel(kernel.name)

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """Return the addresses of arrays in device memory."""
        return [array.data.ptr for array in arrays]

    def empty(self, size: int, dtype: str) -> Any:
        """Return a new array of that many elements, without values."""
        return self._cupy.ndarray(size, dtype)

    def launch(self, code: Any, geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        """Launch code on the stream that CuPy uses in this thread."""
        if not hasattr(self._threads, "ready"):
            # A launch needs the device's context, which CuPy sets in a thread when it allocates.
            self._device.use()
            self._threads.ready = True
        core = _core()
        handle = self._stream_of_thread().ptr
        stream = self._streams.get(handle)
        if stream is None:
            stream = core.defaults.get(handle) or core.stream(handle)
            self._streams[handle] = stream
        core.launch(stream, geometry.config, code, *addresses, *numbers)


class GpuKernels(KernelStore):
    """The kernels of one GPU, compiled and loaded; any thread may ask for them.

    Parameters
    ----------
    number
        CuPy's, of the device.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return a kernel whose cubins are all in files, whole; None otherwise."""
        if all(known(each, bytes) is not None for each in self._wanted(kernel)):
            return self.obtained(kernel)
        return None

    def is_kept(self, kernel: Kernel) -> bool:
        """Return whether all its cubins are in files; nothing is loaded or written."""
        return all(each.is_kept for each in self._wanted(kernel))

    def _wanted(self, kernel: Kernel) -> Iterator[Wanted]:
        with self._runtime() as runtime:
            parts = CudaKernel.parts(tuned.chosen(kernel, runtime.place))
        return (wanted(p.name, skeleton.source(p), runtime.cc, p.mathematics) for p in parts)

    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel from files, from other processes, or compiled now."""
        with self._runtime() as runtime:
            call = CudaKernel(tuned.chosen(kernel, runtime.place), runtime)
            call.prepare()
        return CompiledKernel(kernel, call)

    @contextmanager
    def _runtime(self) -> Iterator[GpuRuntime]:
        """Make the device current in whatever thread this is called."""
        check_driver()
        import cupy

        with cupy.cuda.Device(self._number):
            yield _runtime()


_lock = forks.lock()
_runtimes: dict[int, GpuRuntime] = {}
_kernels: dict[int, GpuKernels] = {}


def here() -> tuned.Place:
    """Return what is remembered of kernels on CuPy's current device is found by."""
    return _runtime().place


def _runtime() -> GpuRuntime:
    check_driver()
    import cupy

    number = cupy.cuda.runtime.getDevice()
    with _lock:
        if number not in _runtimes:
            _runtimes[number] = GpuRuntime()
        return _runtimes[number]


def kernels() -> GpuKernels:
    """Return the kernels of CuPy's current device; nothing is compiled or read."""
    import cupy

    number = cupy.cuda.runtime.getDevice()
    found = _kernels.get(number)
    return _kernels.setdefault(number, GpuKernels(number)) if found is None else found


def handle(kernel: Kernel) -> Handle:
    """Return `kernel` as launches on CuPy's current device hold it; nothing is compiled or read."""
    return kernels().handle(kernel)
