"""Reductions as tasks have them: a function that joins two values, over some axes of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.dataclass import dataclass
from gpusched.kernels import eager
from gpusched.kernels.definition import Definition
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.typed import Typed, typed
from gpusched.plan.expression import Node
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import RecordedFunction, recorder_of

Axes = int | list[int] | tuple[int, ...] | None


@dataclass(frozen=True)
class ReduceKernel(RecordedFunction):
    """Joins the values of an array along axes.

    Notes
    -----
    Immutable, thread-safe, and equal to any other that computes the same. The order in which
    values are joined is not defined.
    """

    combine: Definition
    """Takes and returns values of the result's dtype."""
    identity: bool | int | float

    @property
    def __name__(self) -> str:
        return self.combine.name

    def __dask_tokenize__(self) -> Any:
        return "gpusched.reduction", self.combine.digest, repr(self.identity)

    def typed(self, dtype: np.dtype) -> Typed:
        """Return the joining operation for values of `dtype`, of the dtype that it needs.

        Raises
        ------
        KernelError
            If the identity is not of that dtype, or what joins does not return a number of it.
        """
        code = self.combine.function.__code__
        if self.combine.arity != 2:
            raise KernelError(
                f"{location(code)}: {self.__name__} joins two values; it takes "
                f"{self.combine.arity} arguments"
            )
        wide = widened(dtype, self.identity)
        for _ in range(3):
            found = typed(self.combine, (wide, wide))
            if not found.single:
                raise KernelError(f"{location(code)}: {self.__name__} joins two values into one")
            wider = np.result_type(wide, found.results[0])
            if wider == wide:
                return typed(self.combine, (wide, wide), (wide,), self._checked(wide))
            wide = wider
        raise KernelError(f"{location(code)}: {self.__name__} returns another dtype each time")

    def _checked(self, dtype: np.dtype) -> Any:
        with np.errstate(all="ignore"):
            try:
                value = np.asarray(self.identity).astype(dtype)[()]
            except OverflowError:
                value = np.asarray(0, dtype)[()]
        exact = value == self.identity or (value != value and self.identity != self.identity)
        if not exact and not (dtype.kind == "f" and np.isfinite(value)):
            raise KernelError(f"the identity {self.identity!r} is not a number of {dtype}")
        return value.item()

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the reduction of a lazy chunk."""
        (node,) = (operand(recorder, a) for a in args)
        assert isinstance(node, Node)
        found = self.typed(node.dtype)
        dtype = found.results[0]
        axis = options.get("axis")
        axes = tuple(range(node.ndim)) if axis is None else normalize_axis_tuple(axis, node.ndim)
        axes, keepdims = tuple(sorted(axes)), bool(options.get("keepdims"))
        recorder.operations += 1
        if 0 in node.shape:
            kept = enumerate(node.shape)
            shape = tuple(1 if k in axes else n for k, n in kept if keepdims or k not in axes)
            identity = self._checked(dtype)
            result = recorder.call(recorder.device.full, (shape, identity, dtype), {}, copies=True)
        else:
            value = recorder.cast(node, dtype)
            result = recorder.reduce(found.operation, value, axes, keepdims)
        return LazyChunk(recorder, result, scalar=not result.shape)

    def __call__(self, x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        """Reduce an array, or record the reduction where the array is a lazy chunk."""
        recorder = recorder_of((x,))
        if recorder is not None:
            return self.record(recorder, x, axis=axis, keepdims=keepdims)
        if isinstance(axis, list):
            axis = tuple(axis)
        return eager.run(self, (x,), axis=axis, keepdims=keepdims)


def widened(dtype: np.dtype, identity: Any) -> np.dtype:
    """Return the dtype in which values are joined, given theirs and the identity."""
    truth = dtype.kind == "b" and type(identity) is bool
    if dtype.kind in "biu" and dtype != np.uint64 and not truth:
        dtype = np.dtype(np.int64)
    if type(identity) is float and dtype.kind in "iu":
        return np.dtype(np.float64)
    return dtype
