"""`gpusched.kernel`: a scalar function, called on arrays, and frozen as tasks have it."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched import forks
from gpusched.dataclass import dataclass
from gpusched.kernels import dask_arrays
from gpusched.kernels.definition import Definition, define, inner_function, outside_of
from gpusched.kernels.eager import FrozenKernel
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.notebook import Shown
from gpusched.kernels.signatures import Kinds, Signature, resolve
from gpusched.kernels.typed import Typed, typed
from gpusched.plan.expression import Node
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import Freezable

Outside = dict[str, tuple[Any, bytes | None]]
"""Values by where they are read, with the bytes of arrays."""


@dataclass(frozen=True)
class ScalarKernel(FrozenKernel):
    """A scalar function applied to each element, as tasks have it.

    Notes
    -----
    Immutable, thread-safe, and equal to any other that computes the same.
    """

    definition: Definition
    signatures: tuple[Signature, ...] = ()
    elementwise = True

    @property
    def __name__(self) -> str:
        return self.definition.name

    def __dask_tokenize__(self) -> Any:
        return "gpusched.kernel", self.definition.digest, repr(self.signatures)

    def typed(self, kinds: Kinds) -> Typed:
        """Return the operation for arguments of such dtypes or Python types."""
        self.check_count(len(kinds))
        arguments, declared = resolve(self.signatures, kinds, self.__name__)
        return typed(self.definition, arguments, declared)

    def check_count(self, given: int) -> None:
        """Raise `KernelError` if that is not the number of the function's parameters."""
        if given != self.definition.arity:
            raise KernelError(
                f"{location(self.definition.function.__code__)}: kernel {self.__name__} takes "
                f"{self.definition.arity} arguments; {given} were given"
            )

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the operation on lazy chunks; return a lazy chunk for each result."""
        operands = [operand(recorder, a) for a in args]
        operation = self.typed(tuple(map(kind_of, operands)))
        arguments = tuple(
            recorder.cast(o, dtype) for o, dtype in zip(operands, operation.arguments, strict=True)
        )
        # A loop of the user's own is always worth a kernel.
        recorder.operations += 1
        nodes = [
            recorder.apply(operation.operation, arguments, dtype, k)
            for k, dtype in enumerate(operation.results)
        ]
        chunks = tuple(LazyChunk(recorder, n, scalar=not n.shape, fresh=True) for n in nodes)
        return chunks[0] if operation.single else chunks


def kind_of(value: Any) -> Any:
    """Return the dtype of an operand, or the type of a Python number."""
    if isinstance(value, Node | np.generic):
        return value.dtype
    return type(value)


class ElementwiseKernel(Shown, Freezable):
    """A user's scalar function, that arrays can be given to.

    Parameters
    ----------
    function : callable
        Plain Python over numbers: arithmetic, comparisons, loops, branches, `math` and NumPy's
        scalar functions, and other such functions. Returns a number, or a tuple of numbers.
    signatures : tuple of Signature
        Declared dtypes; none for those that numba infers.

    Notes
    -----
    Thread-safe. What the function reads from outside is looked at on each call, so that a global
    that has changed is another kernel; a dask array keeps what it was built with.
    """

    signature = None
    """As a ufunc has it: every argument broadcasts."""

    def __init__(
        self, function: Callable[..., Any], signatures: tuple[Signature, ...] = ()
    ) -> None:
        if not isinstance(function, types.FunctionType):
            raise KernelError(f"a kernel is made of a Python function, not of {function!r}")
        functools.update_wrapper(self, function)
        self.python = function
        """The function as Python runs it, on numbers: for pdb."""
        self.signatures = signatures
        self._lock = forks.lock()
        self._frozen: ScalarKernel | None = None
        self._outside: Outside = {}

    @property
    def __gpusched_function__(self) -> Callable[..., Any]:
        return self.python

    @property
    def nin(self) -> int:
        """Number of arguments, as a ufunc has it."""
        return self.frozen().definition.arity

    @property
    def nout(self) -> int:
        """Number of results for float64 arguments, as a ufunc has it."""
        return len(self.frozen().typed((np.dtype(np.float64),) * self.nin).results)

    def frozen(self) -> ScalarKernel:
        """Return the kernel as it is now, with the present values of what it reads from outside.

        Raises
        ------
        KernelError
            If the function is none that a kernel can be made of.
        """
        with self._lock:
            outside = _all_outside(self.python)
            if self._frozen is None or not _same(outside, self._outside):
                self._frozen = ScalarKernel(define(self.python), self.signatures)
                self._outside = outside
            return self._frozen

    def parts(self) -> tuple[ScalarKernel, ...]:
        """Return what a plan that holds this kernel depends on."""
        return (self.frozen(),)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function's values at each element; arguments broadcast as NumPy's do.

        A `dask.array.Array` among the arguments makes the result one.
        """
        kernel = self.frozen()
        args = in_order(self.python, args, named)
        args = with_defaults(args, kernel.definition.arity, self.python.__defaults__ or ())
        for value in args:
            if dask_arrays.is_dask(value):
                return dask_arrays.elementwise(kernel, args)
            foreign = not isinstance(value, np.ndarray | np.generic | LazyChunk | ElementwiseKernel)
            if foreign and _overrides(value):
                found = value.__array_ufunc__(self, "__call__", *args)
                if found is not NotImplemented:
                    return found
        return kernel(*args)

    def __repr__(self) -> str:
        return f"<gpusched kernel {self.__name__}>"  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        frozen = self.frozen()
        return _restore, (frozen, self.__name__, self.__doc__)  # type: ignore[attr-defined]


def in_order(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Return arguments, some of them given by name, in the order of a function's parameters.

    Raises
    ------
    KernelError
        If the function has no such parameters.

    Examples
    --------
    >>> from gpusched.kernels.elementwise import in_order
    >>> in_order(lambda x, y=2, z=3: x, (1,), {"z": 5})
    (1, 2, 5)
    """
    if not named:
        return args
    try:
        bound = inspect.signature(function).bind(*args, **named)
    except TypeError as error:
        raise KernelError(
            f"{location(function.__code__)}: kernel {function.__name__}: {error}"
        ) from None
    bound.apply_defaults()
    return bound.args


def with_defaults(args: tuple[Any, ...], arity: int, defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with the defaults of those that are not given.

    Examples
    --------
    >>> from gpusched.kernels.elementwise import with_defaults
    >>> with_defaults((1,), 3, (5, 6)), with_defaults((1, 2), 3, (5, 6))
    ((1, 5, 6), (1, 2, 6))
    """
    missing = arity - len(args)
    return (*args, *defaults[-missing:]) if 0 < missing <= len(defaults) else args


def _restore(frozen: ScalarKernel, name: str, doc: str | None) -> ElementwiseKernel:
    function = frozen.definition.plain()
    function.__doc__ = doc
    return ElementwiseKernel(function, frozen.signatures)


def _all_outside(function: Any) -> Outside:
    """Return what a function and those it calls read from outside."""
    found: Outside = {}
    waiting, seen = [function], {id(function)}
    while waiting:
        current = waiting.pop()
        for name, value in outside_of(current).items():
            # Arrays may change in place.
            content = value.tobytes() if isinstance(value, np.ndarray) else None
            found[f"{id(current)}.{name}"] = value, content
            inner = inner_function(value)
            if hasattr(inner, "__code__") and id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)
    return found


def _same(left: Outside, right: Outside) -> bool:
    return left.keys() == right.keys() and all(
        value is right[key][0] and content == right[key][1]
        for key, (value, content) in left.items()
    )


def _overrides(value: Any) -> bool:
    """Return whether a value, such as xarray's, takes part in NumPy's protocol of ufuncs."""
    cupy_like = type(value).__module__.partition(".")[0] == "cupy"
    return getattr(value, "__array_ufunc__", None) is not None and not cupy_like
