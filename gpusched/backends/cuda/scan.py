"""Scans on a GPU: their kernels, and how many blocks and launches one takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpusched.backends.cuda.compiler import Compiled, compile_kernel
from gpusched.backends.cuda.geometry import HIGHEST, Geometry
from gpusched.emit.operations import named
from gpusched.emit.parsing import register
from gpusched.emit.policy import FEW_TILES, SPLIT_BLOCKS, THREADS
from gpusched.emit.skeleton import scan as skeleton
from gpusched.nvtx_ranges import Kind, shown

Shape = tuple[int, int, int]
"""Values before the scanned axis, along it, and after it."""


@dataclass(frozen=True)
class ScanCode:
    """A kernel of scans; equal ones share machine code."""

    operation: str
    """Name in `operations.DEFINED` of what joins two values."""
    dtype: str
    inner: bool
    """Whether the last axis is scanned."""

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return f"{self.operation}_scan_{'rows' if self.inner else 'columns'}"

    @property
    def source(self) -> str:
        """The whole text."""
        write = skeleton.rows if self.inner else skeleton.columns
        title = f"# {self.name}, for CUDA, written by gpusched"
        return f"{title}\n\n\n{write(self.operation, self.dtype)}\n"

    @property
    def pointers(self) -> int:
        """Number of arrays among the arguments, which come first; 64-bit numbers follow."""
        return 3 if self.inner else 2

    @property
    def numbers(self) -> int:
        """How many sizes and strides the kernel takes."""
        return 6 if self.inner else 3

    def build(self, cc: tuple[int, int]) -> Compiled:
        """Return the machine code for GPUs of one compute capability, whether one is here."""
        from gpusched.backends.cuda import bindings
        from gpusched.backends.cuda.numba_cuda import types

        text = self.source
        filename = register(f"<gpusched cuda {self.name}>", text)
        joins = named(self.operation).function
        function = bindings.load(
            text, filename, self.name, {self.operation: joins} if joins else {}
        )
        item = types.boolean if self.dtype == "bool" else getattr(types, self.dtype)
        signature = [types.CPointer(item)] * self.pointers + [types.int64] * self.numbers
        return compile_kernel(function, tuple(signature), cc, THREADS)


class CudaScan:
    """A scan to call with arrays.

    Parameters
    ----------
    operation, dtype
        What joins two values, and of what dtype they are.
    runtime
        Where it runs: as for `launcher.CudaKernel`, but compiling `ScanCode`.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, operation: str, dtype: str, runtime: Any) -> None:
        self._runtime = runtime
        self._dtype = dtype
        self._codes = {inner: ScanCode(operation, dtype, inner) for inner in (True, False)}
        self._loaded: dict[bool, Any] = {}

    @shown(Kind.KERNEL, lambda self, *arguments: self._codes[arguments[2][2] == 1].name)
    def __call__(self, values: Any, out: Any, shape: Shape) -> int:
        """Scan contiguous values into other memory; return the number of launches."""
        before, length, after = shape
        if after > 1:
            columns = before * after
            blocks = min(-(-columns // THREADS), 1 << 20)
            geometry = Geometry((blocks, 1, 1), (THREADS, 1, 1), 0)
            self._launch(False, geometry, (values, out), (length, columns, after))
            return 1
        parts, tiles = split(before, length)
        if parts == 1:
            self._rows(values, values, out, (length, before, 1, tiles, 0, 1))
            return 1
        totals, carries = (self._runtime.empty(before * parts, self._dtype) for _ in range(2))
        self._rows(values, values, totals, (length, before, parts, tiles, 0, 0))
        again = math.ceil(parts / skeleton.TILE)
        self._rows(totals, totals, carries, (parts, before, 1, again, 0, 1))
        self._rows(values, carries, out, (length, before, parts, tiles, 1, 1))
        return 3

    def _rows(self, values: Any, carries: Any, out: Any, numbers: tuple[int, ...]) -> None:
        _, count, parts, *_ = numbers
        geometry = Geometry((parts, min(count, HIGHEST), 1), (THREADS, 1, 1), 0)
        self._launch(True, geometry, (values, carries, out), numbers)

    def _launch(self, inner: bool, geometry: Geometry, arrays: tuple[Any, ...],
                numbers: tuple[int, ...]) -> None:  # fmt: skip
        if inner not in self._loaded:
            self._loaded[inner] = self._runtime.compile(self._codes[inner])
        places = self._runtime.addresses(arrays)
        self._runtime.launch(self._loaded[inner], geometry, arrays, places, numbers)


def split(rows: int, length: int) -> tuple[int, int]:
    """Return into how many parts a row is divided, and the tiles of each.

    It does not ask how large the GPU is, so that results come out the same on any.

    Examples
    --------
    >>> from gpusched.backends.cuda.scan import split
    >>> split(1, 10_000_000), split(5000, 10_000), split(1, 100)
    ((977, 10), (1, 10), (1, 1))
    """
    whole = math.ceil(length / skeleton.TILE)
    wanted = max(1, SPLIT_BLOCKS // rows) if whole > FEW_TILES else 1
    tiles = math.ceil(whole / min(wanted, whole))
    return math.ceil(whole / tiles), tiles
