"""The decorators by which users make kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.errors import KernelError
from gpusched.kernels.laws import warn_unless_associative, warn_unless_order_is_free
from gpusched.kernels.raw import RawKernel
from gpusched.kernels.reduction import ReductionKernel
from gpusched.kernels.scan import ScanKernel
from gpusched.kernels.signatures import Signature, dtypes_of, parse
from gpusched.kernels.stencil import StencilKernel
from gpusched.kernels.tuple_reduction import TupleReductionKernel

Function = Callable[..., Any]


class _Required:
    """The default of an argument that has none; errors say more than Python's."""

    def __repr__(self) -> str:
        return "<required>"


_MISSING = _Required()


class _Decorator:
    """Make a kernel of a scalar function: one definition for CPUs, GPUs and the debugger.

    The kernel takes arrays (of dask, NumPy, CuPy, xarray, any library with DLPack) and numbers,
    and broadcasts as NumPy's functions do. In a chunk task it becomes one loop with the NumPy
    calls around it.

    Parameters
    ----------
    function : callable
        Takes and returns numbers; a tuple of numbers for several results.
    *signatures : str
        Declared dtypes, such as ``"float32(float32, int64)"`` or ``"(float32, bool)(float64)"``;
        the first that fits is taken.
    dtypes : dtype_like or tuple of dtype_like, optional
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
        if any(not isinstance(text, str) for text in given):
            raise KernelError(
                f"a kernel is made of a Python function, not of {given[0]!r}; a signature is a "
                "string"
            )
        signatures = parse(given)
        if dtypes is not None:
            signatures = (Signature(dtypes_of(dtypes)),)

        def decorate(function: Function) -> ElementwiseKernel:
            return ElementwiseKernel(function, signatures)

        return decorate

    @staticmethod
    def reduction(
        identity: Any = _MISSING, value: Function | ElementwiseKernel | None = None
    ) -> Callable[[Function], Any]:
        """Make a reduction of a function that joins two values, or two tuples of values.

        Parameters
        ----------
        identity : number or tuple of number
            What changes nothing when joined.
        value : callable or kernel, optional
            A scalar function or kernel whose values are joined, of one or several arrays.

        Returns
        -------
        Callable
            A decorator; the kernel it makes is called as ``f(x, axis=None, keepdims=False)``. It
            returns a tuple of arrays where tuples are joined.

        Notes
        -----
        The function must be associative and commutative: chunks, and the threads of a GPU, join
        their values in an order of their own; a warning names samples for which it is not.
        Integers narrower than 64 bits are joined as int64. Tuples are joined on the CPU, by a
        loop that is not fused with others, along one axis in the order of the array.

        Examples
        --------
        >>> import gpusched, numpy as np
        >>> @gpusched.kernel.reduction(identity=(-np.inf, -1))
        ... def largest(a, b):
        ...     return a if a[0] >= b[0] else b
        >>> highest, where = largest(np.array([1.0, 9.0, 4.0]), np.arange(3))
        >>> float(highest), int(where)
        (9.0, 1)

        >>> @gpusched.kernel.reduction(identity=0.0, value=lambda x, y: (x - y) ** 2)
        ... def squared_distance(a, b):
        ...     return a + b
        >>> float(squared_distance(np.array([1.0, 2.0]), np.array([4.0, 6.0])))
        25.0
        """
        _check_identity("reduction", identity)

        def decorate(function: Function) -> Any:
            several = isinstance(identity, tuple)
            made = (TupleReductionKernel if several else ReductionKernel)(function, identity, value)
            warn_unless_order_is_free(function, made.identity)
            return made

        return decorate

    @staticmethod
    def scan(
        identity: Any = _MISSING, value: Function | ElementwiseKernel | None = None
    ) -> Callable[[Function], ScanKernel]:
        """Make a scan of a function that joins two values, as `numpy.cumsum` is made of addition.

        Parameters
        ----------
        identity : number
            What changes nothing when joined.
        value : callable or kernel, optional
            A scalar function or kernel whose values are joined, of one or several arrays.

        Returns
        -------
        Callable
            A decorator; the kernel it makes is called as ``f(x, axis=None)``.

        Notes
        -----
        The function must be associative, since chunks are joined one after the other; a warning
        names samples for which it is not. On a GPU values that are joined are joined again,
        so that floating-point results differ from the CPU's in their last bits.

        Examples
        --------
        >>> import gpusched, numpy as np
        >>> @gpusched.kernel.scan(identity=0)
        ... def highest_so_far(a, b):
        ...     return max(a, b)
        >>> highest_so_far(np.array([1, 3, 2, 5]))
        array([1, 3, 3, 5])
        """
        _check_identity("scan", identity)

        def decorate(function: Function) -> ScanKernel:
            made = ScanKernel(function, identity, value)
            warn_unless_associative(function, made.identity)
            return made

        return decorate

    @overload
    @staticmethod
    def raw(function: Function, /) -> RawKernel: ...

    @overload
    @staticmethod
    def raw() -> Callable[[Function], RawKernel]: ...

    @staticmethod
    def raw(function: Function | None = None, /) -> Any:
        """Make a kernel of a function of threads and blocks, as `numba.cuda` has them.

        Parameters
        ----------
        function : callable
            Uses `numba.cuda`: positions, shared memory, barriers, atomics; returns nothing and
            changes arrays among its arguments.

        Returns
        -------
        RawKernel
            Launched as ``f[blocks, threads](*arguments)``; ``f.simulate(blocks, threads)(...)``
            checks it: missing guards, races, barriers that not all threads reach.

        Notes
        -----
        On NumPy arrays a launch runs compiled on one core, thread after thread, with every index
        checked. What has no such meaning runs in the simulator, and is counted as a break in
        `gpusched.statistics` with the reason. The simulator needs the package greenlet.

        Examples
        --------
        >>> import gpusched, numpy as np
        >>> from numba import cuda
        >>> @gpusched.kernel.raw
        ... def add_one(x):
        ...     i = cuda.grid(1)
        ...     if i < x.size:
        ...         x[i] += 1
        >>> x = np.zeros(5)
        >>> add_one.simulate(2, 4)(x)
        >>> add_one[2, 4](x)
        >>> x
        array([2., 2., 2., 2., 2.])
        """
        return RawKernel if function is None else RawKernel(function)

    @overload
    @staticmethod
    def stencil(function: Function, /) -> StencilKernel: ...

    @overload
    @staticmethod
    def stencil(
        boundary: Any = "reflect", *, dtypes: Any = None
    ) -> Callable[[Function], StencilKernel]: ...

    @staticmethod
    def stencil(boundary: Any = "reflect", *, dtypes: Any = None) -> Any:
        """Make a stencil of a function of neighbours.

        Parameters
        ----------
        boundary : str, number or tuple of these
            What is beyond the edges of the whole array: ``"reflect"`` (the edge is repeated),
            ``"nearest"``, ``"periodic"`` or a number; a tuple has one for each axis.
        dtypes : dtype_like, optional
            The dtype of the result, where it is not to be the one that numba infers.

        Returns
        -------
        Callable
            A decorator; the kernel it makes takes as many arguments as the function. Those that
            the function indexes are arrays of one shape; the others are numbers, or broadcast.

        Raises
        ------
        KernelError
            If an offset is not constant, or the function's source cannot be found.

        Notes
        -----
        Offsets are constant integers; ``for i in range(-1, 2)`` gives constants, too. Integers that
        offsets and ranges read from outside have the values of when the stencil is made.
        On dask arrays it wraps `dask.array.overlap`. The kernel reads each input once; arrays are
        copied before, to have their borders.

        Examples
        --------
        >>> import gpusched, numpy as np
        >>> @gpusched.kernel.stencil(boundary="nearest")
        ... def slope(a, step):
        ...     return (a[1] - a[-1]) / (2 * step)
        >>> slope(np.array([0.0, 1.0, 4.0, 9.0]), 1.0)
        array([0.5, 2. , 4. , 2.5])
        """
        if callable(boundary):
            return StencilKernel(boundary, "reflect")
        signatures = () if dtypes is None else (Signature(dtypes_of(dtypes)),)

        def decorate(function: Function) -> StencilKernel:
            return StencilKernel(function, boundary, signatures)

        return decorate

    def __repr__(self) -> str:
        return "<decorator gpusched.kernel, with .stencil, .reduction, .scan and .raw>"


def _check_identity(kind: str, identity: Any) -> None:
    """Raise an error that says what to write, where a decorator has no identity."""
    if identity is _MISSING or callable(identity):
        raise KernelError(
            f"a {kind} needs the number that changes nothing when joined: write "
            f"@gpusched.kernel.{kind}(identity=0)"
        )


kernel: _Decorator = _Decorator()
kernel.__doc__ = _Decorator.__doc__
# Python names a function so in its errors, such as that of an argument nobody knows.
_Decorator.__call__.__qualname__ = "kernel"
for _function in (_Decorator.reduction, _Decorator.scan, _Decorator.raw, _Decorator.stencil):
    _function.__qualname__ = f"kernel.{_function.__name__}"
