"""`gpusched.kernel.reduction`: a function that joins two values, called on arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np

from gpusched.kernels import dask_arrays
from gpusched.kernels.array_arguments import taken
from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.errors import KernelError
from gpusched.kernels.notebook import Shown
from gpusched.kernels.reduce import Axes, ReduceKernel
from gpusched.record.recorded import Freezable, RecordedFunction


class ReductionKernel(Shown, Freezable):
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

    def __init__(self, function: Callable[..., Any], identity: Any,
                 value: Callable[..., Any] | ElementwiseKernel | None = None) -> None:  # fmt: skip
        if type(identity) not in (bool, int, float) and not isinstance(identity, np.generic):
            raise KernelError(f"the identity of a reduction is a number, not {identity!r}")
        # Follows what the function reads from outside.
        self._joins = ElementwiseKernel(function)
        update_wrapper(self, function)
        self.python = function
        """The function as Python runs it, on two numbers."""
        self.identity = identity.item() if isinstance(identity, np.generic) else identity
        plain = value is not None and not isinstance(value, ElementwiseKernel)
        self.value: Any = ElementwiseKernel(value) if plain else value  # type: ignore[arg-type]
        """The elementwise kernel whose values are joined, if there is one."""

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

    def __reduce__(self) -> Any:
        return _restore, (self._joins, self.identity, self.value)

    def __repr__(self) -> str:
        return f"<gpusched reduction {self.__name__}>"  # type: ignore[attr-defined]


def _restore(joins: ElementwiseKernel, identity: Any, value: Any) -> ReductionKernel:
    return ReductionKernel(joins.python, identity, value)
