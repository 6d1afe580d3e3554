"""Test support: places that run CUDA kernels without a GPU, behind `launcher.Runtime`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.backends.cuda.compiler import Compiled
from gpusched.backends.cuda.geometry import Geometry
from gpusched.backends.cuda.kernel_launch import CudaKernel
from gpusched.backends.cuda.runtime import GpuRuntime, compile_for
from gpusched.backends.python import uninitialised
from gpusched.emit.kernel import Kernel
from gpusched.store.handles import CompiledKernel
from tests.backends.cuda import memory


class HostRuntime:
    """NumPy arrays as device memory."""

    def __init__(self) -> None:
        self.launches: list[tuple[Kernel, Geometry]] = []

    def addresses(self, arrays: Iterable[np.ndarray]) -> list[int]:
        return [array.ctypes.data for array in arrays]

    def empty(self, size: int, dtype: str) -> np.ndarray:
        return uninitialised(size, np.dtype(dtype))

    def get(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel as recorders want it."""
        call = CudaKernel(kernel, self)  # type: ignore[arg-type]
        return CompiledKernel(kernel, call)


class IrRuntime(HostRuntime):
    """numba-cuda's IR on this processor; reductions in blocks of one thread."""

    def __init__(self, cc: tuple[int, int] = (9, 0)) -> None:
        super().__init__()
        self.cc = cc
        self.compiled: list[Compiled] = []

    def compile(self, kernel: Kernel) -> tuple[Kernel, Any]:
        from tests.backends.cuda.ir_on_cpu import OnCpu

        self.compiled.append(compile_for(kernel, self.cc))
        return kernel, OnCpu(self.compiled[-1])

    def launch(self, code: tuple[Kernel, Any], geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        kernel, on_cpu = code
        self.launches.append((kernel, geometry))
        if "reduce" in kernel.loops:
            x, y, z = geometry.grid
            if kernel.loops[-1] == "map":
                x *= geometry.block[0]
            geometry = dataclasses.replace(geometry, grid=(x, y, z), block=(1, 1, 1))
        integers = len(numbers) - len(kernel.parameters)
        kinds = ["pointer"] * len(arrays) + [*kernel.parameters] + ["int64"] * integers
        on_cpu(geometry, [*addresses, *numbers], kinds)


class SimulatorRuntime(HostRuntime):
    """The kernel's source in plain Python, with all threads of a block."""

    def __init__(self, backwards: bool = False) -> None:
        from gpusched.backends.cuda.simulator import Simulator

        super().__init__()
        self.simulator = Simulator(backwards=backwards)

    def compile(self, kernel: Kernel) -> tuple[Kernel, Any]:
        return kernel, self.simulator.compile(kernel)

    def launch(self, code: tuple[Kernel, Any], geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        kernel, function = code
        self.launches.append((kernel, geometry))
        self.simulator.launch(function, geometry, arrays, addresses, numbers)


class GpuHostRuntime(HostRuntime):
    """A real GPU, for arrays that are in host memory: they go there and back at each launch."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu = GpuRuntime()

    def compile(self, kernel: Kernel) -> tuple[Kernel, Any]:
        return kernel, self.gpu.compile(kernel)

    def launch(self, code: tuple[Kernel, Any], geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        kernel, loaded = code
        self.launches.append((kernel, geometry))
        mirrors = {id(root): memory.Mirror(root) for root in map(memory.root, arrays)}
        places = [mirrors[id(memory.root(array))].address(array) for array in arrays]
        self.gpu.launch(loaded, geometry, arrays, places, numbers)
        for array in arrays[len(kernel.inputs) :]:
            mirrors[id(memory.root(array))].download()
