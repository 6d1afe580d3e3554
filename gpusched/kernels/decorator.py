"""The decorators by which users make kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.errors import KernelError
from gpusched.kernels.signatures import Signature, dtypes_of, parse

Function = Callable[..., Any]


class _Decorator:
    """Make a kernel of a function of numbers: one definition for CPUs, GPUs and the debugger.

    The kernel takes arrays (of dask, NumPy, CuPy, xarray, any library with DLPack) and numbers,
    and broadcasts as NumPy's functions do. In a chunk task it becomes one loop with the NumPy
    calls around it.

    Parameters
    ----------
    function
        Takes and returns numbers; a tuple of numbers for several results.
    *signatures
        Declared dtypes, such as ``"float32(float32, int64)"`` or ``"(float32, bool)(float64)"``;
        the first that fits is taken.
    dtypes
        Dtypes of the results only: one, or a tuple of them.

    Returns
    -------
    ElementwiseKernel
        Called on arrays; its ``python`` is the function itself.

    Raises
    ------
    KernelError
        On the first call, with file and line, if no kernel can be made of the function.

    Notes
    -----
    Unless dtypes are declared, integers come as int64 (uint64 as itself), and results have the
    dtype that numba infers; if all floating arguments are float32, so are floating results.
    Exceptions, generators, ``*args`` and recursion are refused, since GPUs have none.

    Examples
    --------
    >>> import gpusched, numpy as np
    >>> @gpusched.kernel
    ... def steps(real, imaginary):
    ...     z, c, n = 0j, complex(real, imaginary), 0
    ...     while n < 50 and abs(z) < 2.0:
    ...         z = z * z + c
    ...         n += 1
    ...     return n
    >>> steps(np.array([-2.0, 0.0, 1.0]), 0.0)
    array([ 1, 50,  2])
    """

    @overload
    def __call__(self, function: Function, /) -> ElementwiseKernel: ...

    @overload
    def __call__(
        self, *signatures: str, dtypes: Any = None
    ) -> Callable[[Function], ElementwiseKernel]: ...

    def __call__(self, *given: Any, dtypes: Any = None) -> Any:
        if len(given) == 1 and callable(given[0]) and dtypes is None:
            return ElementwiseKernel(given[0])
        if given and dtypes is not None:
            raise KernelError("give signatures, or dtypes of the results, not both")
        signatures = parse(given)
        if dtypes is not None:
            signatures = (Signature(dtypes_of(dtypes)),)

        def decorate(function: Function) -> ElementwiseKernel:
            return ElementwiseKernel(function, signatures)

        return decorate


kernel = _Decorator()
"""What users decorate their functions with."""
kernel.__doc__ = _Decorator.__doc__
