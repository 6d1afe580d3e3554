"""Scans as tasks have them: each value joined with all before it, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.backends.devices import device_of
from gpusched.dataclass import dataclass
from gpusched.kernels import eager
from gpusched.kernels.errors import KernelError
from gpusched.kernels.reduce import ReduceKernel
from gpusched.kernels.scalar import ScalarKernel
from gpusched.kernels.signatures import Signature
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import RecordedFunction, recorder_of
from gpusched.record.scans import scanned


@dataclass(frozen=True)
class ScanKernel(RecordedFunction):
    """Joins each value of an array with those before it.

    Notes
    -----
    Immutable, thread-safe. Values are joined in their order. On a GPU with few lanes, blocks of
    each are joined first, so that floating-point sums may differ in the last bits.
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
        (array,) = (LazyChunk(recorder, operand(recorder, a)) for a in args)
        axis = normalize_axis_index(options.get("axis", 0), array.ndim)
        found = self.joins.typed(array.dtype)
        recorder.operations += 1
        if 0 in array.shape or array.shape[axis] == 1:
            return np.copy(array.astype(found.results[0]))
        return scanned(array, found.operation, axis, found.results[0])

    def __call__(self, x: Any, axis: int = 0) -> Any:
        """Scan an array along one axis, or record it where the array is a lazy chunk."""
        recorder = recorder_of((x,))
        if recorder is not None:
            return self.record(recorder, x, axis=axis)
        if not isinstance(x, np.ndarray) and device_of(x) is None:
            raise KernelError(
                f"scan {self.__name__} was given a {type(x).__module__}.{type(x).__name__}; scans "
                "take NumPy and CuPy arrays, and dask arrays of them"
            )
        return eager.run(self, (x,), axis=axis)
