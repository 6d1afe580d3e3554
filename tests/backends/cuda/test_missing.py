"""What is said where the GPU, its driver or the compiler is missing."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpusched.backends.cuda import compiler, runtime


@pytest.mark.processes
def test_importing_the_backend_imports_no_optional_library() -> None:
    code = (
        "import sys\n"
        "from gpusched.backends.cuda import compiler, geometry, kernel_launch, runtime\n"
        "from gpusched.emit import skeleton\n"
        "assert not {'cupy', 'numba', 'cuda', 'numba_cuda'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["cuda.bindings", "numba_cuda"])
def test_missing_compiler_names_the_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(compiler.CompilerMissingError, match=r"pip install .*\[cuda13\]"):
        compiler.require()


def test_missing_driver_is_found_before_anything_is_asked_of_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_library(name: str) -> Any:
        raise OSError(name)

    runtime.check_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    for module in ("cuda.core", "cupy"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(runtime.NoDeviceError, match=r"libcuda\.so\.1 was not found"):
        runtime.GpuRuntime()


class _Driver:
    def __init__(self, status: int, count: int) -> None:
        self.status, self.count = status, count

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.count
        return 0


@pytest.mark.parametrize(("status", "count"), [(100, 0), (0, 0)])
def test_driver_without_devices(status: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.check_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Driver(status, count))
    with pytest.raises(runtime.NoDeviceError, match=rf"cuInit says {status}, {count} devices"):
        runtime.check_driver()


def test_driver_with_a_device_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.check_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Driver(0, 1))
    runtime.check_driver()
    monkeypatch.setattr(ctypes, "CDLL", None)
    runtime.check_driver()
    runtime.check_driver.cache_clear()


def test_disassembler_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nvidia", type(sys)("nvidia"))
    sys.modules["nvidia"].__path__ = []
    with pytest.raises(FileNotFoundError, match="nvidia-cuda-nvdisasm"):
        compiler.disassembler()


def test_tested_versions_are_those_that_the_extras_install() -> None:
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())
    for extra in ("cuda12", "cuda13", "cuda-test"):
        pinned = dict(
            each.split("==")
            for each in project["project"]["optional-dependencies"][extra]
            if "==" in each
        )
        assert {name: pinned[name] for name in compiler.TESTED} == compiler.TESTED


@pytest.mark.slow  # The first to import numba-cuda.
def test_changed_private_interface_is_explained_with_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda comes with the extra cuda-test")
    from gpusched.backends.cuda import numba_cuda

    def kernel(x: Any) -> None:
        x[0] = 1

    signature = (numba_cuda.types.CPointer(numba_cuda.types.float32),)
    monkeypatch.delattr(numba_cuda.compiler, "kernel_fixup")
    with pytest.raises(compiler.CompilerVersionError) as told:
        compiler.compile_kernel(kernel, signature, (9, 0))
    for name in ("numba-cuda", "cuda-core", "numpy"):
        assert f"{name} {compiler.installed(name)}" in str(told.value)
    assert "kernel_fixup" in str(told.value)


@pytest.mark.parametrize("version", ["0.30.4", "0.31.0"])
def test_type_errors_of_the_tested_versions_are_not_explained(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "installed", lambda name: {"numba-cuda": version}.get(
        name, compiler.TESTED.get(name, "none")))  # fmt: skip
    expected = TypeError if version == "0.30.4" else compiler.CompilerVersionError
    with pytest.raises(expected, match="an argument more"), compiler.explained():
        raise TypeError("an argument more")


@pytest.mark.processes
def test_kernels_compile_with_a_numpy_without_row_stack() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda comes with the extra cuda-test")
    code = """
import numpy as np
vars(np).pop("row_stack", None)
np.__all__ = [name for name in np.__all__ if name != "row_stack"]
real = np.__getattr__
def refuse(name):
    if name == "row_stack":
        raise AttributeError(name)
    return real(name)
np.__getattr__ = refuse
from gpusched.backends.cuda.compiler import compile_kernel
from gpusched.backends.cuda.numba_cuda import cuda, types
def kernel(x):
    x[0] = cuda.threadIdx.x
assert compile_kernel(kernel, (types.CPointer(types.float32),), (9, 0)).cubin
assert not hasattr(np, "row_stack")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
