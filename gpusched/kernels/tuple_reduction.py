"""`gpusched.kernel.reduction` with a tuple as identity: several values are joined at once."""

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
from gpusched.kernels.reduce import Axes
from gpusched.kernels.tuples import TupleReduceKernel


class TupleReductionKernel(Shown):
    """A user's reduction of tuples, such as a maximum and where it is.

    Parameters
    ----------
    function
        Joins two tuples into one; associative.
    identity
        A tuple that changes nothing when joined.
    value
        Makes such a tuple of the elements of one or several arrays; None takes as many arrays as
        the tuple has items.

    Notes
    -----
    Thread-safe.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        identity: tuple[Any, ...],
        value: Callable[..., Any] | ElementwiseKernel | None = None,
    ) -> None:
        if not identity or not all(_is_number(item) for item in identity):
            raise KernelError(f"the identity is a number, or a tuple of numbers, not {identity!r}")
        # Follows what the function reads from outside.
        self._joins = ElementwiseKernel(function)
        update_wrapper(self, function)
        self.python = function
        """The function as Python runs it, on two tuples."""
        self.identity = tuple(i.item() if isinstance(i, np.generic) else i for i in identity)
        plain = value is not None and not isinstance(value, ElementwiseKernel)
        self.value: Any = ElementwiseKernel(value) if plain else value  # type: ignore[arg-type]
        """The elementwise kernel whose tuples are joined, if there is one."""

    def frozen(self) -> TupleReduceKernel:
        """Return the kernel as it is now."""
        return TupleReduceKernel(self._joins.frozen().definition, self.identity)

    def __call__(self, *args: Any, axis: Axes = None, keepdims: bool = False) -> tuple[Any, ...]:
        """Return the items of the tuples joined along `axis` (all of them by default).

        Parameters
        ----------
        *args
            Arrays, which broadcast: one for each item, or what `value` takes.
        axis
            One axis or several.
        keepdims
            Whether the axes stay, with length 1.
        """
        values = args if self.value is None else self.value(*args)
        values = values if isinstance(values, tuple) else (values,)
        if any(map(dask_arrays.is_dask, values)):
            return dask_arrays.tuple_reduction(self.frozen(), values, axis, keepdims)
        arrays = tuple(np.asarray(taken(v)) for v in values)
        found = self.frozen()(*arrays, axis=axis, keepdims=keepdims)
        return tuple(each if each.ndim else each[()] for each in found)

    def __reduce__(self) -> Any:
        return _restore, (self._joins, self.identity, self.value)

    def __repr__(self) -> str:
        return f"<gpusched reduction {self.__name__}>"  # type: ignore[attr-defined]


def _is_number(item: Any) -> bool:
    return type(item) in (bool, int, float) or isinstance(item, np.generic)


def _restore(joins: ElementwiseKernel, identity: Any, value: Any) -> TupleReductionKernel:
    return TupleReductionKernel(joins.python, identity, value)
