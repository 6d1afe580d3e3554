"""`gpusched.kernel.reduction`: a function that joins two values, over some axes of an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.dataclass import dataclass
from gpusched.kernels import dask_arrays
from gpusched.kernels.array_arguments import taken
from gpusched.kernels.definition import Definition
from gpusched.kernels.eager import FrozenKernel
from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.notebook import Shown
from gpusched.kernels.typed import Typed, typed
from gpusched.plan.expression import Node
from gpusched.record.accumulation import reduced_shape, reduction
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import Freezable, RecordedFunction

Axes = int | list[int] | tuple[int, ...] | None


@dataclass(frozen=True)
class ReduceKernel(FrozenKernel):
    """A reduction as tasks have it.

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
            given = reduced_shape(node, axes, keepdims), self._checked(dtype), dtype
            result = recorder.call(recorder.device.full, given, {}, copies=True)
        else:
            value = recorder.cast(node, dtype)
            result = reduction(recorder, found.operation, value, axes, keepdims)
        return LazyChunk(recorder, result, scalar=not result.shape)


def widened(dtype: np.dtype, identity: Any) -> np.dtype:
    """Return the dtype in which values are joined, given theirs and the identity."""
    truth = dtype.kind == "b" and type(identity) is bool
    if dtype.kind in "biu" and dtype != np.uint64 and not truth:
        dtype = np.dtype(np.int64)
    if type(identity) is float and dtype.kind in "iu":
        return np.dtype(np.float64)
    return dtype


def _is_number(item: Any) -> bool:
    return type(item) in (bool, int, float) or isinstance(item, np.generic)


def _item(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


class JoiningKernel(Shown):
    """What users hold of a function that joins values, or tuples: reductions and scans."""

    tuples = False
    """Whether tuples are joined, and not numbers."""

    def __init__(self, function: Callable[..., Any], identity: Any,
                 value: Callable[..., Any] | ElementwiseKernel | None = None) -> None:  # fmt: skip
        items = identity if self.tuples and isinstance(identity, tuple) else (identity,)
        if not items or not all(map(_is_number, items)):
            what = "a number, or a tuple of numbers" if self.tuples else "a number"
            raise KernelError(f"the identity of a reduction is {what}, not {identity!r}")
        # Follows what the function reads from outside.
        self._joins = ElementwiseKernel(function)
        update_wrapper(self, function)  # type: ignore[arg-type]
        self.python = function
        """The function as Python runs it, on what is joined."""
        self.identity: Any = tuple(map(_item, identity)) if self.tuples else _item(identity)
        plain = value is not None and not isinstance(value, ElementwiseKernel)
        self.value: Any = ElementwiseKernel(value) if plain else value  # type: ignore[arg-type]
        """The elementwise kernel whose values are joined, if there is one."""

    def __reduce__(self) -> Any:
        return _restore, (type(self), self._joins, self.identity, self.value)

    def __repr__(self) -> str:
        return f"<gpusched reduction {self.__name__}>"  # type: ignore[attr-defined]


def _restore(
    kind: type[JoiningKernel], joins: ElementwiseKernel, identity: Any, value: Any
) -> JoiningKernel:
    return kind(joins.python, identity, value)


class ReductionKernel(JoiningKernel, Freezable):
    """A user's reduction.

    Parameters
    ----------
    function : callable
        Joins two values; associative and commutative.
    identity : number
        What joined with any value gives that value.
    value : callable or kernel, optional
        Makes of the elements of one or several arrays what is joined; None takes them as they are.

    Notes
    -----
    Thread-safe.
    """

    def frozen(self) -> ReduceKernel:
        """Return the kernel as it is now."""
        return ReduceKernel(self._joins.frozen().definition, self.identity)

    def parts(self) -> tuple[RecordedFunction, ...]:
        """Return what a plan that holds this kernel depends on."""
        return (self.frozen(), *(self.value.parts() if self.value else ()))

    def __call__(self, *args: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        """Return the values joined along `axis` (all of them by default).

        Parameters
        ----------
        *args
            One array; as many as `value` takes, which broadcast, if there is one.
        axis
            One axis or several.
        keepdims
            Whether the axes stay, with length 1.
        """
        x, kernel = self._single(args), self.frozen()
        axis = tuple(axis) if isinstance(axis, list) else axis
        if dask_arrays.is_dask(x):
            return dask_arrays.reduction(kernel, x, axis, keepdims)
        return kernel(x if hasattr(x, "_recorder") else taken(x), axis=axis, keepdims=keepdims)

    def _single(self, args: tuple[Any, ...]) -> Any:
        """Return the one array whose values are joined."""
        if self.value is not None:
            return self.value(*args)
        if len(args) != 1:
            name = self.__name__  # type: ignore[attr-defined]
            raise KernelError(f"{name} joins the values of one array; {len(args)} were given")
        return args[0]
