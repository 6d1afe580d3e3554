"""`gpusched.kernel.scan`: a function that joins each value with those before it, along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from gpusched.backends.devices import device_of
from gpusched.dataclass import dataclass
from gpusched.kernels import dask_arrays
from gpusched.kernels.array_arguments import taken
from gpusched.kernels.eager import FrozenKernel
from gpusched.kernels.elementwise import ScalarKernel
from gpusched.kernels.errors import KernelError
from gpusched.kernels.reduction import ReduceKernel, ReductionKernel
from gpusched.kernels.signatures import Signature
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.scans import scanned


@dataclass(frozen=True)
class AccumulateKernel(FrozenKernel):
    """A scan as tasks have it.

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

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Scan an array along one axis, or record it where the array is a lazy chunk."""
        (x,) = args
        if not isinstance(x, np.ndarray | LazyChunk) and device_of(x) is None:
            raise KernelError(
                f"scan {self.__name__} was given a {type(x).__module__}.{type(x).__name__}; scans "
                "take NumPy and CuPy arrays, and dask arrays of them"
            )
        return super().__call__(x, **options)


class ScanKernel(ReductionKernel):
    """A user's scan: `numpy.cumsum` with a function instead of addition.

    Parameters
    ----------
    function : callable
        Joins two values; associative.
    identity : number
        What joined with any value gives that value.
    value : callable or kernel, optional
        Makes of the elements of one or several arrays what is joined; None takes them as they are.

    Notes
    -----
    Thread-safe.
    """

    def __call__(self, *args: Any, axis: int | None = None) -> Any:  # type: ignore[override]
        """Return, at each place, the values up to there joined along `axis`.

        Parameters
        ----------
        *args
            One array; as many as `value` takes, if there is one.
        axis
            One axis; an array of several axes is flattened if None.
        """
        x, kernel = self._single(args), AccumulateKernel(self.frozen())
        if dask_arrays.is_dask(x):
            return dask_arrays.scan(kernel, x, axis)
        x = x if hasattr(x, "_recorder") else taken(x)
        if axis is None:
            x, axis = np.reshape(x, -1), 0
        return kernel(x, axis=axis)

    def __repr__(self) -> str:
        return f"<gpusched scan {self.__name__}>"  # type: ignore[attr-defined]
