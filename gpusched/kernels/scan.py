"""`gpusched.kernel.scan`: a function that joins each value with those before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.kernels import dask_arrays
from gpusched.kernels.accumulate import ScanKernel as FrozenScan
from gpusched.kernels.array_arguments import taken
from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.reduction import ReductionKernel


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
        x, kernel = self._single(args), FrozenScan(self.frozen())
        if dask_arrays.is_dask(x):
            return dask_arrays.scan(kernel, x, axis)
        x = x if hasattr(x, "_recorder") else taken(x)
        if axis is None:
            x, axis = np.reshape(x, -1), 0
        return kernel(x, axis)

    def __reduce__(self) -> Any:
        return _restore, (self._joins, self.identity, self.value)

    def __repr__(self) -> str:
        return f"<gpusched scan {self.__name__}>"  # type: ignore[attr-defined]


def _restore(joins: ElementwiseKernel, identity: Any, value: Any) -> ScanKernel:
    return ScanKernel(joins.python, identity, value)
