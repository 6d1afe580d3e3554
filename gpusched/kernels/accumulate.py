"""Scans as tasks have them: each value joined with all before it, along one axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.backends.devices import HOST, Device, device_of
from gpusched.dataclass import dataclass
from gpusched.kernels.errors import KernelError
from gpusched.kernels.reduce import ReduceKernel
from gpusched.kernels.scalar import ScalarKernel
from gpusched.kernels.signatures import Signature
from gpusched.kernels.typed import variant
from gpusched.record.chunk import compute
from gpusched.record.record import Recorder
from gpusched.record.recorded import RecordedFunction, recorder_of
from gpusched.store.statistics import updating


@dataclass(frozen=True)
class ScanKernel(RecordedFunction):
    """Joins each value of an array with those before it.

    Notes
    -----
    Immutable, thread-safe. Values are joined in their order. What comes before in a chunk task is
    computed first: a scan is a loop of its own. On a GPU the order in which the joined values are
    joined again differs from the CPU's, so that floating-point sums may in the last bits.
    """

    joins: ReduceKernel

    @property
    def __name__(self) -> str:
        return self.joins.__name__

    def __dask_tokenize__(self) -> Any:
        return "gpusched.scan", self.joins

    def dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the dtype of the result for values of `dtype`."""
        return self.joins.typed(dtype).results[0]

    def binary(self, dtype: np.dtype) -> ScalarKernel:
        """Return the elementwise kernel that joins results of that dtype."""
        signature = Signature((dtype,), (dtype, dtype))
        return ScalarKernel(self.joins.combine, (signature,))

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the scan of a lazy chunk."""
        recorder.operations += 1
        return compute(recorder, self, args, options)

    def __call__(self, x: Any, axis: int = 0) -> Any:
        """Scan an array along one axis, or record it where the array is a lazy chunk."""
        recorder = recorder_of((x,))
        if recorder is not None:
            return self.record(recorder, x, axis=axis)
        device = HOST if isinstance(x, np.ndarray) else device_of(x)
        if device is None:
            raise KernelError(
                f"scan {self.__name__} was given a {type(x).__module__}.{type(x).__name__}; scans "
                "take NumPy and CuPy arrays, and dask arrays of them"
            )
        return self._run(x, axis, device)

    def _run(self, x: Any, axis: int, device: Device) -> Any:
        axis = normalize_axis_index(axis, x.ndim)
        dtype = self.dtype(x.dtype)
        values = x.astype(dtype, order="C", copy=False)
        out = device.empty(x.shape, dtype)
        if out.size:
            middle = x.shape[axis]
            before = int(np.prod(x.shape[:axis], dtype=int))
            shape = before, middle, out.size // (before * middle)
            launches = self._on(device, dtype)(values, out, shape)
            with updating() as counters:
                counters.launches += launches
                counters.kernels[f"{self.__name__}_scan"] += launches
                # Of three launches, two read the values.
                counters.bytes_read += values.nbytes * (1 + launches // 3)
                counters.bytes_written += out.nbytes
        return out

    def _on(self, device: Device, dtype: np.dtype) -> Callable[[Any, Any, Any], int]:
        """Return what scans contiguous values on a device, and returns the number of launches."""
        if not device.can.host_memory:
            from gpusched.backends.cuda import runtime

            return runtime.scan(self.joins.typed(dtype).operation, dtype.name)
        loop = _loop(self.joins, dtype)

        def run(values: np.ndarray, out: np.ndarray, shape: tuple[int, int, int]) -> int:
            loop(values.reshape(shape), out.reshape(shape))
            return 1

        return run


@lru_cache(maxsize=256)
def _loop(joins: ReduceKernel, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray], None]:
    """Return the compiled loop: values and results have three axes, the middle one is scanned."""
    import numba

    combine = variant(joins.combine, (dtype, dtype)).for_cpu()
    convert = getattr(numba, "boolean" if dtype.kind == "b" else dtype.name)

    def loop(values: np.ndarray, out: np.ndarray) -> None:
        for before in range(values.shape[0]):
            for after in range(values.shape[2]):
                out[before, 0, after] = values[before, 0, after]
            for k in range(1, values.shape[1]):
                for after in range(values.shape[2]):
                    joined = combine(out[before, k - 1, after], values[before, k, after])
                    out[before, k, after] = convert(joined)

    item = numba.from_dtype(dtype)
    readable = numba.types.Array(item, 3, "C", readonly=True, aligned=False)
    signature = numba.void(readable, numba.types.Array(item, 3, "C"))
    compiled: Callable[[np.ndarray, np.ndarray], None] = numba.njit(
        signature, error_model="numpy", nogil=True
    )(loop)
    with updating() as counters:
        counters.compilations += 1
    return compiled
