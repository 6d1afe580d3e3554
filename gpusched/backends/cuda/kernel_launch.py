"""Calls of a kernel: how large the launch is, and a second launch where results are partial."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Protocol

from gpusched.backends.cuda.geometry import Geometry, geometry
from gpusched.emit.kernel import Kernel
from gpusched.emit.policy import VECTOR
from gpusched.emit.skeleton.reduction import levels, partials
from gpusched.nvtx_ranges import Kind, shown

GEOMETRIES = 1024
"""Launches that each kernel remembers, by sizes and strides."""


class Runtime(Protocol):
    """Where kernels run: a GPU, or something that stands for one in tests."""

    def compile(self, kernel: Kernel) -> Any:
        """Return the kernel's code, in whatever form `launch` takes."""

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """Return the addresses of arrays' first elements."""

    def empty(self, size: int, dtype: str) -> Any:
        """Return an uninitialised one-dimensional array."""

    def launch(self, code: Any, geometry: Geometry, arrays: tuple[Any, ...],
               addresses: list[int], numbers: tuple[Any, ...]) -> None:  # fmt: skip
        """Start a kernel and return; later work of the same thread waits for it."""


class CudaKernel:
    """A kernel to call with arrays, constants, loop sizes and strides.

    Parameters
    ----------
    kernel
        What to run.
    runtime
        Where to run it.

    Notes
    -----
    Thread-safe: after construction only memoised geometries change, and equal keys give equal
    ones.  Outputs need no initial value, since every element of theirs is written; but for those of
    a segmented reduction, which joins its values to what is there.
    """

    def __init__(self, kernel: Kernel, runtime: Runtime) -> None:
        self.kernel = kernel
        self._runtime = runtime
        self._code = runtime.compile(kernel)
        self._arrays = len(kernel.inputs) + len(kernel.outputs)
        self._constants = self._arrays + len(kernel.parameters)
        self._geometry = lru_cache(maxsize=GEOMETRIES)(partial(geometry, kernel))
        self._elements = lru_cache(maxsize=GEOMETRIES)(self.elements)
        self._seconds: dict[bool, CudaKernel] = {}

    @shown(Kind.KERNEL, lambda self, *arguments: self.kernel.name)
    def __call__(self, *arguments: Any) -> None:
        """Launch the kernel, and a second one where results are partial."""
        arrays, numbers = arguments[: self._arrays], arguments[self._constants :]
        addresses = self._runtime.addresses(arrays)
        merged = 0
        for address in addresses:
            merged |= address
        found = self._geometry(numbers, merged % VECTOR == 0)
        if found.splits > 1:
            self._split(found, arguments, addresses)
        else:
            rest = (*arguments[self._arrays :], found.vectors, found.each)
            self._runtime.launch(self._code, found, arrays, addresses, rest)

    @staticmethod
    def parts(kernel: Kernel) -> list[Kernel]:
        """Return what is compiled for a kernel: itself, and what joins its partial results."""
        splits = kernel.reduces and not kernel.segmented
        return [kernel, *(partials(kernel, n) for n in (1, 2))] if splits else [kernel]

    def prepare(self) -> None:
        """Compile what joins partial results, so that no launch has to."""
        if len(self.parts(self.kernel)) > 1:
            self._second(True), self._second(False)

    def _split(self, found: Geometry, arguments: tuple[Any, ...], addresses: list[int]) -> None:
        """Reduce into partial results, then reduce those."""
        inputs, elements = len(self.kernel.inputs), self._elements(arguments[self._constants :])
        size = found.splits * elements
        parts = [self._runtime.empty(size, output.dtype) for output in self.kernel.outputs]
        places = addresses[:inputs] + self._runtime.addresses(parts)
        arrays = (*arguments[:inputs], *parts)
        rest = (*arguments[self._arrays :], found.vectors, found.each)
        self._runtime.launch(self._code, found, arrays, places, rest)
        sizes: tuple[int, ...] = (found.splits,) if elements == 1 else (found.splits, elements)
        strides: tuple[int, ...] = () if elements == 1 else (elements,) * len(parts)
        second = self._second(elements == 1)
        second(*parts, *arguments[inputs : self._arrays], *sizes, *strides)

    def elements(self, numbers: tuple[int, ...]) -> int:
        """Return how many elements each output has, given the loops' sizes."""
        kept = levels(self.kernel, "map")
        if self.kernel.loops[-1] == "map":
            kept.append(len(self.kernel.loops) - 1)
        return math.prod(numbers[k] for k in kept)

    def _second(self, single: bool) -> CudaKernel:
        if single not in self._seconds:
            joining = partials(self.kernel, 1 if single else 2)
            self._seconds[single] = CudaKernel(joining, self._runtime)
        return self._seconds[single]
