"""`gpusched.kernel.reduction` of several values at once, such as a maximum and where it is.

Tuples are joined by loops of their own, compiled by numba for the host, with no other call in them;
the values that they join are elementwise kernels, which are fused with what makes their arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched import forks
from gpusched.dataclass import dataclass
from gpusched.kernels import dask_arrays, mathematics
from gpusched.kernels.array_arguments import taken
from gpusched.kernels.definition import Definition
from gpusched.kernels.errors import KernelError, from_numba, location
from gpusched.kernels.reduction import Axes, JoiningKernel, widened
from gpusched.kernels.typed import variant
from gpusched.newest import Newest

Number = bool | int | float


class Loop:
    """What joins rows of tuples to those in the results.

    Notes
    -----
    Thread-safe: it is compiled once, when it is called first, and nobody waits for another loop.
    """

    def __init__(self, combine: Definition, dtypes: tuple[np.dtype, ...]) -> None:
        self._made_of = combine, dtypes
        self._compiling = forks.lock()
        self._compiled: Callable[..., None] | None = None

    def __call__(self, *arrays: np.ndarray) -> None:
        """Join the rows of some arrays to the results, which come after them."""
        if self._compiled is None:
            with self._compiling:
                if self._compiled is None:
                    self._compiled = _compiled(*self._made_of)
        self._compiled(*arrays)


_loops: Newest[Any, Loop] = Newest(256)
"""By definition and dtypes."""


@dataclass(frozen=True)
class TupleReduceKernel:
    """A reduction as tasks have it: joins tuples, whose items are arrays of one shape, along axes.

    Notes
    -----
    Immutable, thread-safe, and equal to any other that computes the same. Along one axis, tuples
    are joined in the order of the array.
    """

    combine: Definition
    """Takes two tuples, and returns one."""
    identity: tuple[Number, ...]

    @property
    def __name__(self) -> str:
        return self.combine.name

    def __dask_tokenize__(self) -> Any:
        return "gpusched.tuple-reduction", self.combine.digest, repr(self.identity)

    def dtypes(self, given: tuple[np.dtype, ...]) -> tuple[np.dtype, ...]:
        """Return the dtypes of the results for items of such dtypes.

        Raises
        ------
        KernelError
            If there are not as many as in the identity.
        """
        if len(given) != len(self.identity):
            raise KernelError(
                f"{location(self.combine.function.__code__)}: {self.__name__} joins tuples of "
                f"{len(self.identity)}, as its identity; {len(given)} values were given"
            )
        return tuple(map(widened, given, self.identity))

    def __call__(
        self, *arrays: Any, axis: Axes = None, keepdims: bool = False
    ) -> tuple[np.ndarray, ...]:
        """Return the items of the joined tuples, each an array."""
        dtypes = self.dtypes(tuple(a.dtype for a in arrays))
        hosted = np.broadcast_arrays(*map(np.asarray, arrays))
        ndim = hosted[0].ndim
        axes = range(ndim) if axis is None else sorted(normalize_axis_tuple(axis, ndim))
        kept = [k for k in range(ndim) if k not in axes]
        shape = tuple(hosted[0].shape[k] for k in kept)
        count, size = math.prod(hosted[0].shape[k] for k in axes), math.prod(shape)
        order = [*axes, *kept]
        given = [
            np.ascontiguousarray(a.transpose(order).reshape(count, size), dtype)
            for a, dtype in zip(hosted, dtypes, strict=True)
        ]
        results = [
            np.full(size, first, dtype) for first, dtype in zip(self.identity, dtypes, strict=True)
        ]
        self._loop(dtypes)(*given, *results)
        final = (
            tuple(1 if k in axes else n for k, n in enumerate(hosted[0].shape))
            if keepdims
            else shape
        )
        return tuple(found.reshape(final) for found in results)

    def record_dtype(self, given: tuple[np.dtype, ...]) -> np.dtype:
        """Return the dtype of records with the results for items of such dtypes."""
        return _record_dtype(self.dtypes(given))

    def records(self, *arrays: Any, axis: Axes = None, keepdims: bool = True) -> np.ndarray:
        """Return the joined tuples as an array of records, such as a chunk's partial results."""
        found = self(*arrays, axis=axis, keepdims=keepdims)
        records = np.empty(found[0].shape, _record_dtype(tuple(a.dtype for a in found)))
        for name, values in zip(records.dtype.names or (), found, strict=True):
            records[name] = values
        return records

    def of_records(self, x: Any, axis: Axes = None, keepdims: bool = False) -> np.ndarray:
        """Return the tuples joined that an array of such records has."""
        return self.records(*(x[name] for name in x.dtype.names), axis=axis, keepdims=keepdims)

    def _loop(self, dtypes: tuple[np.dtype, ...]) -> Loop:
        """Return what joins rows of tuples to those in the results, the same one each time."""
        key = self.combine.digest, dtypes
        found = _loops.get(key)
        return _loops.setdefault(key, Loop(self.combine, dtypes)) if found is None else found


def _record_dtype(dtypes: tuple[np.dtype, ...]) -> np.dtype:
    return np.dtype([(f"f{k}", dtype) for k, dtype in enumerate(dtypes)])


def _source(items: int) -> str:
    numbers = range(items)
    rows = ", ".join(f"a{k}" for k in numbers)
    results = ", ".join(f"r{k}" for k in numbers)
    so_far = ", ".join(f"r{k}[i]" for k in numbers)
    values = ", ".join(f"a{k}[j, i]" for k in numbers)
    kept = "\n".join(f"            r{k}[i] = found[{k}]" for k in numbers)
    return (
        f"def loop({rows}, {results}):\n"
        f"    for j in range(a0.shape[0]):\n"
        f"        for i in range(a0.shape[1]):\n"
        f"            found = combine(({so_far},), ({values},))\n"
        f"{kept}\n"
    )


def _compiled(combine: Definition, dtypes: tuple[np.dtype, ...]) -> Callable[..., None]:
    import numba

    from gpusched.vectormath.bits import device

    code = combine.function.__code__
    function = device(variant(combine, ()).bound(code, device, mathematics.for_cpu()))
    scope: dict[str, Any] = {"combine": function}
    exec(_source(len(dtypes)), scope)
    signature = tuple(
        numba.types.Array(numba.from_dtype(dtype), ndim, "C") for ndim in (2, 1) for dtype in dtypes
    )
    loop: Callable[..., None] = numba.njit(scope["loop"])
    _check(function, combine, dtypes)
    try:
        loop.compile(signature)  # type: ignore[attr-defined]
    except numba.core.errors.NumbaError as error:
        raise from_numba(combine.name, error) from error
    return loop


def _check(function: Any, combine: Definition, dtypes: tuple[np.dtype, ...]) -> None:
    """Raise an error unless the function makes a tuple of two that has as many items."""
    import numba

    joined = numba.types.Tuple([numba.from_dtype(dtype) for dtype in dtypes])
    try:
        function.get_call_template((joined, joined), {})
    except numba.core.errors.NumbaError as error:
        raise from_numba(combine.name, error) from error
    returned = function.overloads[joined, joined].signature.return_type
    items = len(returned) if isinstance(returned, numba.types.BaseTuple) else 1
    if items != len(dtypes):
        raise KernelError(
            f"{location(combine.function.__code__)}: {combine.name} joins tuples of {len(dtypes)} "
            f"into {'a tuple of ' + str(items) if items > 1 else 'a single value'}"
        )


class TupleReductionKernel(JoiningKernel):
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

    tuples = True

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
