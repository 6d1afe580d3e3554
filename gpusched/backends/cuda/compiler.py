"""Python function -> cubin.  The one file that drives numba-cuda's compiler by private interfaces.

No device and no driver are needed: numba-cuda serves as a compiler only.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from gpusched import installing
from gpusched.emit.policy import THREADS

_MISSING = (
    "compiling for NVIDIA GPUs needs packages that are not installed here: {reason}. "
    "Install them with {command} (or its extra cuda12 for a driver of that version)"
)


class CompilerMissingError(ImportError):
    """The packages of an extra are not installed; the message names it.

    Parameters
    ----------
    reason
        What could not be imported.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(_MISSING.format(reason=reason, command=installing.command("cuda13")))


class CompilerVersionError(Exception):
    """A private interface of numba-cuda or cuda-core is not what it is in the tested versions."""


TESTED = {"numba-cuda": "0.30.4", "cuda-core": "1.2.2"}
"""What the extras of pyproject.toml install: exactly these."""

_BESIDE = ("numba", "llvmlite", "cuda-bindings", "numpy")
"""What else may be why an interface is another one."""


def installed(name: str) -> str:
    """Return the version of a package that is installed here, or "none".

    Examples
    --------
    >>> from gpusched.backends.cuda.compiler import installed
    >>> installed("no-such-package")
    'none'
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


@contextmanager
def explained() -> Iterator[None]:
    """Raise `CompilerVersionError`, with all versions, where an interface is missing or differs.

    What a kernel itself has wrong is another error: numba-cuda's own, or a `TypeError`, which is
    taken for a changed interface where the versions are not the tested ones.
    """
    try:
        yield
    except (AttributeError, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and all(installed(n) == v for n, v in TESTED.items()):
            raise
        raise CompilerVersionError(_message(error)) from error


def _message(error: Exception) -> str:
    tested = ", ".join(f"{name} {version}" for name, version in TESTED.items())
    here = ", ".join(f"{name} {installed(name)}" for name in (*TESTED, *_BESIDE))
    return (
        f"kernels for GPUs are compiled through private interfaces of {tested}; here are {here}, "
        f"where one of them fails: {type(error).__name__}: {error}. Install the tested versions "
        f"with {installing.command('cuda13')} (or its extra cuda12 for a driver of that version)"
    )


@dataclass(frozen=True)
class Compiled:
    """Machine code of one kernel for one kind of GPU."""

    name: str
    """The kernel's symbol."""
    cc: tuple[int, int]
    """Compute capability, such as (9, 0)."""
    cubin: bytes
    """An ELF image that the driver loads as it is."""
    _library: Any = None
    """numba-cuda's code library; absent where the cubin came from a cache."""

    def ptx(self) -> str:
        """Return the assembly before register allocation."""
        return str(self._library.get_asm_str(cc=self.cc))

    def llvm(self) -> str:
        """Return the intermediate representation before optimisation."""
        return str(self._library.get_llvm_str())

    def sass(self) -> str:
        """Return the machine code as text.

        Raises
        ------
        FileNotFoundError
            If there is no ``nvdisasm``: it is in the package nvidia-cuda-nvdisasm.
        """
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            command = [disassembler(), "-c", file.name]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disassembler() -> str:
    """Return the path of ``nvdisasm``; `FileNotFoundError` if there is none."""
    found = shutil.which("nvdisasm")
    if found is None:
        roots = [Path(path) for path in import_module("nvidia").__path__]
        places = (path for root in roots for path in root.glob("*/bin/nvdisasm"))
        found = next((str(path) for path in places), None)
    if found is None:
        raise FileNotFoundError("no nvdisasm; 'pip install nvidia-cuda-nvdisasm' brings one")
    return found


def require() -> None:
    """Check that kernels can be compiled.

    Raises
    ------
    CompilerMissingError
        If the compiler's packages are not installed.
    CompilerVersionError
        If they are, in versions that have other private interfaces.
    """
    try:
        import_module("numba_cuda")  # Without it, numba.cuda is numba's own, older one.
        from cuda.bindings import nvrtc

        with explained():
            from gpusched.backends.cuda.numba_cuda import nvvm

        nvvm.NVVM()
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise CompilerMissingError(error) from error


class _Device:
    """Stands for a device whose kind is known but which need not be here."""

    def __init__(self, cc: tuple[int, int]) -> None:
        self.compute_capability = cc


@contextmanager
def _compiling_for(cc: tuple[int, int]) -> Iterator[None]:
    """Answer numba-cuda's questions about the device; it asks where kernels call functions.

    The compiler lock is held, so that no other thread sees the replacement.
    """
    from gpusched.backends.cuda.numba_cuda import compiler_lock, dispatcher

    with compiler_lock.global_compiler_lock:
        original = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: _Device(cc)
        try:
            yield
        finally:
            dispatcher.get_current_device = original


EXACT: dict[str, Any] = {"fma": 0}
"""Options of NVVM: no contraction of multiplications and additions, so that results are NumPy's."""
FAST: dict[str, Any] = {"fma": 1, "ftz": 1, "prec_div": 0, "prec_sqrt": 0}
"""To contract, to take subnormal numbers of float32 for zero, and not to round the last bit of
quotients and square roots of float32."""


def device_function(function: Callable[..., Any]) -> Any:
    """Return `function` for calls from kernels, which say how exact it is."""
    from gpusched.backends.cuda.numba_cuda import cuda

    return cuda.jit(device=True, fma=False)(function)


def compile_kernel(
    function: Callable[..., None],
    signature: tuple[Any, ...],
    cc: tuple[int, int],
    threads: int = THREADS,
    mathematics: Mapping[str, Any] = EXACT,
) -> Compiled:
    """Compile a kernel to machine code, on any machine.

    Pointer arguments are taken not to overlap.

    Parameters
    ----------
    function
        The kernel; its `__name__` becomes the symbol.
    signature
        numba-cuda types of the arguments.
    cc
        Compute capability, such as (8, 0), (9, 0), (10, 0).
    threads
        The most threads that a block is launched with.
    mathematics
        `EXACT` or `FAST`.

    Raises
    ------
    CompilerMissingError, CompilerVersionError
        If the compiler's packages are not installed, or are not the tested versions and differ.

    Examples
    --------
    >>> from numba.cuda import types                                    # doctest: +SKIP
    >>> pointer = types.CPointer(types.float32)                         # doctest: +SKIP
    >>> compile_kernel(kernel, (pointer, types.int64), (9, 0)).name     # doctest: +SKIP
    'kernel'
    """
    require()
    with explained():
        return _compile(function, signature, cc, threads, mathematics)


def _compile(
    function: Callable[..., None],
    signature: tuple[Any, ...],
    cc: tuple[int, int],
    threads: int,
    mathematics: Mapping[str, Any],
) -> Compiled:
    from gpusched.adapters import numba as numba_code
    from gpusched.backends.cuda.numba_cuda import compiler, nvvm, types

    with _compiling_for(cc):
        options = {"opt": 3, **mathematics}
        result = compiler.compile_cuda(
            function, types.void, signature, nvvm_options=options, cc=cc, abi="numba"
        )
        library = result.library
        entry = library.get_function(result.fndesc.llvm_func_name)
        numba_code.rename(entry, function.__name__)
        compiler.kernel_fixup(entry, False)
        nvvm.set_launch_bounds(entry, threads)
        for argument in entry.args:
            if argument.type.is_pointer:
                argument.add_attribute("noalias")
        numba_code.set_entry(library, entry.name)
        return Compiled(entry.name, cc, bytes(library.get_cubin(cc=cc).code), library)
